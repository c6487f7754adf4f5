-- Forget the dead or the cancelled jobs (:state) that finished longest ago; `prune_keys.sql` follows.
DELETE FROM jobcontract_dead INDEXED BY jobcontract_dead_id
WHERE id IN (
    SELECT id
    FROM jobcontract_dead INDEXED BY jobcontract_dead_finished
    WHERE state = :state
        AND finished_at <= (SELECT now FROM jobcontract_clock) - :older_than
    ORDER BY finished_at
    LIMIT :limit
)
RETURNING id, queue, idempotency_key
