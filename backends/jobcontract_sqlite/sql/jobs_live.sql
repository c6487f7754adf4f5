SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    state, attempt, created_at, NULL AS finished_at, lease_until, last_error, refunded
FROM jobcontract_jobs
