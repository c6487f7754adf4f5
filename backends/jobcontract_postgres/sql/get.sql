-- One job, whatever its state.
-- Parameter: id.
SELECT id::text, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref::text, headers::text,
       state, attempt, created_at, finished_at, lease_until, last_error, refunded
FROM {schema}.jobs
WHERE id = %s::uuid
LIMIT 1
