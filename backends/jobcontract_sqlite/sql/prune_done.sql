-- Forget the done jobs that finished longest ago; `prune_keys.sql` follows.
DELETE FROM jobcontract_done INDEXED BY jobcontract_done_id
WHERE id IN (
    SELECT id
    FROM jobcontract_done INDEXED BY jobcontract_done_finished
    WHERE finished_at <= (SELECT now FROM jobcontract_clock) - :older_than
    ORDER BY finished_at
    LIMIT :limit
)
RETURNING id, queue, idempotency_key
