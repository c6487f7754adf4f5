-- Running to done, for each claim that still holds; one row (id) for each job that was moved.
-- Parameters: arrays of id, token.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%s::uuid[], %s::text[]) AS item (id, token)
    CROSS JOIN LATERAL (
        SELECT id
        FROM {schema}.live_jobs AS job
        WHERE job.id = item.id AND job.token::text = item.token AND job.lease_until > clock_timestamp()
        FOR UPDATE
    ) AS job
), finished AS (
    DELETE FROM {schema}.live_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING job.*
)
INSERT INTO {schema}.done_jobs (
    id, run_at, created_at, finished_at, attempt, max_attempts, priority, queue, kind, idempotency_key, last_error,
    headers, input_ref
)
SELECT id, run_at, created_at, clock_timestamp(), attempt, max_attempts, priority, queue, kind, idempotency_key,
       last_error, headers, input_ref
FROM finished
RETURNING id::text
