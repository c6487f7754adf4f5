-- Removes tombstones and placeholders, and frees their keys; one row: how many.
-- Parameters: epoch, limit.
WITH picked AS MATERIALIZED (
    SELECT id
    FROM {schema}.moving_jobs
    WHERE state = 'moved' OR was = 'moving'
    LIMIT CASE (SELECT last_value / 4 FROM {schema}.gate) WHEN %s THEN %s ELSE 0 END
), gone AS (
    DELETE FROM {schema}.moving_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING job.id, job.queue, job.idempotency_key
), freed AS (
    DELETE FROM {schema}.job_keys
    USING gone
    WHERE job_keys.idempotency_key = gone.idempotency_key
      AND job_keys.queue = gone.queue
      AND job_keys.job_id = gone.id
)
SELECT count(*) FROM gone
