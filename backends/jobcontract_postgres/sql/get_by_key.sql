-- The jobs that hold an idempotency key, in one queue or in all of them; newest first.
-- Parameters: key, queue (or null), queue; kind (or null), kind; states; cursor (or null), cursor; limit.
SELECT id::text, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref::text, headers::text,
       state, attempt, created_at, finished_at, lease_until, last_error
FROM {schema}.jobs
WHERE id = ANY (ARRAY(
        SELECT job_id
        FROM {schema}.job_keys
        WHERE job_keys.idempotency_key = %s AND (%s::text IS NULL OR job_keys.queue = %s)
    ))
  AND (%s::text IS NULL OR kind = %s)
  AND state = ANY (%s::text[])
  AND (%s::uuid IS NULL OR id < %s)
ORDER BY id DESC
LIMIT %s
