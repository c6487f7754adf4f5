-- Stored jobs; `lookup.py` adds the conditions that a page asks for, the order and the limit.
SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    state, attempt, created_at, finished_at, lease_expires_at, last_error
FROM jobcontract_all_jobs
WHERE true
