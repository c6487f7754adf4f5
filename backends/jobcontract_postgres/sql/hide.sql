-- Ready to moving, in the order in which they would be claimed; the jobs.
-- Parameters: epoch, limit.
--
-- The fingerprint is given for jobs that hold their key.
WITH picked AS MATERIALIZED (
    SELECT id
    FROM {schema}.live_jobs
    WHERE state = 'ready'
    ORDER BY queue, priority DESC, run_at, id
    LIMIT CASE (SELECT last_value / 4 FROM {schema}.gate) WHEN %s THEN %s ELSE 0 END
    FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM {schema}.live_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING job.*
), hidden AS (
    INSERT INTO {schema}.moving_jobs (
        id, run_at, created_at, attempt, refunded, max_attempts, priority, state, was, queue, kind, idempotency_key,
        last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, attempt, refunded, max_attempts, priority, 'moving', 'ready', queue, kind,
           idempotency_key, last_error, headers, input_ref
    FROM taken
    RETURNING moving_jobs.*
)
SELECT {moved}
FROM hidden AS job
LEFT JOIN {schema}.job_keys USING (queue, idempotency_key)
