-- Copy to the moving jobs dead and cancelled ones; `requeue_leave.sql` follows.
INSERT INTO jobcontract_moving (
    id, queue, kind, priority, run_at, state, was, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    id, queue, kind, priority, run_at, 'moving', state, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
FROM jobcontract_dead INDEXED BY jobcontract_dead_id
ORDER BY id
LIMIT :limit
RETURNING id
