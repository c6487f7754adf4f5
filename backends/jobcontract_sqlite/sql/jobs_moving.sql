SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    state, attempt, created_at, finished_at, NULL AS lease_until, last_error, refunded
FROM jobcontract_moving
