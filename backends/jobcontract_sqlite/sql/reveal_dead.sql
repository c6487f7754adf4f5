-- Copy hidden jobs back to the dead and cancelled ones; `moving_leave.sql` follows.
INSERT INTO jobcontract_dead (
    id, queue, kind, priority, run_at, state, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    id, queue, kind, priority, run_at, was, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
FROM jobcontract_moving INDEXED BY jobcontract_moving_hidden
WHERE state = 'moving' AND was <> 'moving' AND was <> 'ready'
ORDER BY id
LIMIT :limit
RETURNING id
