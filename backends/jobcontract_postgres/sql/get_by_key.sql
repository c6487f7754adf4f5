-- The jobs that hold an idempotency key, in one queue or in all of them; newest first.
-- Parameters: key, queue (or null), queue; cursor; kind (or null), kind; states; limit.
SELECT id::text, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref::text, headers::text,
       state, attempt, created_at, finished_at, lease_until, last_error, refunded
FROM {schema}.jobs AS job
WHERE id = ANY (ARRAY(
        SELECT job_id
        FROM {schema}.job_keys
        WHERE job_keys.idempotency_key = %s AND (%s::text IS NULL OR job_keys.queue = %s)
    ))
  AND id < %s::uuid
  AND (%s::text IS NULL OR kind = %s)
  AND state = ANY (%s::text[])
ORDER BY job.id DESC
LIMIT %s
