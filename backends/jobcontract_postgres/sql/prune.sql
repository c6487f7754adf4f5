-- Forgets ended jobs and their keys; one row: how many.
-- Parameters: least age, states, limit; least age, states, limit.
WITH old_done AS MATERIALIZED (
    SELECT id, finished_at
    FROM {schema}.{history}
    WHERE finished_at <= clock_timestamp() - %s::interval AND 'done' = ANY (%s::text[])
    LIMIT %s
    FOR UPDATE SKIP LOCKED
), old_dead AS MATERIALIZED (
    SELECT id
    FROM {schema}.dead_jobs
    WHERE finished_at <= clock_timestamp() - %s::interval AND state = ANY (%s::text[])
    LIMIT greatest(0, %s - (SELECT count(*) FROM old_done))
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.{history} AS job
    USING old_done
    WHERE job.id = old_done.id AND job.finished_at = old_done.finished_at
    RETURNING job.id, job.queue, job.idempotency_key
), gone_dead AS (
    DELETE FROM {schema}.dead_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM old_dead))
    RETURNING job.id, job.queue, job.idempotency_key
), forgotten AS (
    SELECT id, queue, idempotency_key FROM gone UNION ALL SELECT id, queue, idempotency_key FROM gone_dead
), freed AS (
    DELETE FROM {schema}.job_keys
    USING forgotten
    WHERE job_keys.idempotency_key = forgotten.idempotency_key
      AND job_keys.queue = forgotten.queue
      AND job_keys.job_id = forgotten.id
)
SELECT count(*) FROM forgotten
