-- Ready to cancelled; one row (id) for each job that was moved.
-- Parameter: array of id, sorted.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%s::uuid[]) AS item (id)
    CROSS JOIN LATERAL (
        SELECT id FROM {schema}.live_jobs AS job WHERE job.id = item.id AND job.state = 'ready' FOR UPDATE
    ) AS job
), ended AS (
    DELETE FROM {schema}.live_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING job.*
), kept AS (
    INSERT INTO {schema}.dead_jobs (
        id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
        idempotency_key, last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, clock_timestamp(), attempt, refunded, max_attempts, priority, 'cancelled', queue, kind,
           idempotency_key, last_error, headers, input_ref
    FROM ended
    ON CONFLICT (id) DO NOTHING
)
SELECT id::text FROM ended
