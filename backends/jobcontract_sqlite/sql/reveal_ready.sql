-- Copy hidden jobs back to the live ones; `moving_leave.sql` follows.
INSERT INTO jobcontract_jobs (
    id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at, idempotency_key, last_error,
    headers, input_ref
)
SELECT
    id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at, idempotency_key, last_error,
    headers, input_ref
FROM jobcontract_moving INDEXED BY jobcontract_moving_hidden
WHERE state = 'moving' AND was <> 'moving' AND was = 'ready'
ORDER BY id
LIMIT :limit
RETURNING id
