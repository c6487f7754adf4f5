-- Forget the done jobs that finished longest ago; `prune_keys.sql` follows.
DELETE FROM jobcontract_done
WHERE rowid IN (
    SELECT rowid
    FROM jobcontract_done
    WHERE finished_at <= (SELECT now FROM jobcontract_clock) - :older_than
    ORDER BY finished_at
    LIMIT :limit
)
RETURNING id, queue, idempotency_key
