-- Copy to the moving jobs the ready ones that are claimed first; `leave.sql` follows.
INSERT INTO jobcontract_moving (
    id, queue, kind, priority, run_at, state, was, attempt, refunded, max_attempts, created_at, idempotency_key,
    last_error, headers, input_ref
)
SELECT
    id, queue, kind, priority, run_at, 'moving', 'ready', attempt, refunded, max_attempts, created_at, idempotency_key,
    last_error, headers, input_ref
FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready
WHERE state = 'ready'
ORDER BY queue, priority DESC, run_at, id
LIMIT :limit
RETURNING id
