-- Hidden jobs back to where they were; one row: how many.
-- Parameters: epoch, limit.
WITH picked AS MATERIALIZED (
    SELECT id
    FROM {schema}.moving_jobs
    WHERE state = 'moving' AND was <> 'moving'
    ORDER BY id
    LIMIT CASE (SELECT last_value / 4 FROM {schema}.gate) WHEN %s THEN %s ELSE 0 END
    FOR UPDATE
), taken AS (
    DELETE FROM {schema}.moving_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING job.*
), returned AS (
    INSERT INTO {schema}.live_jobs (
        id, run_at, created_at, attempt, refunded, max_attempts, priority, queue, kind, idempotency_key, last_error,
        headers, input_ref
    )
    SELECT id, run_at, created_at, attempt, refunded, max_attempts, priority, queue, kind, idempotency_key, last_error,
           headers, input_ref
    FROM taken
    WHERE was = 'ready'
    RETURNING queue, run_at
), reburied AS (
    INSERT INTO {schema}.dead_jobs (
        id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
        idempotency_key, last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, was, queue, kind,
           idempotency_key, last_error, headers, input_ref
    FROM taken
    WHERE was <> 'ready'
), due AS (
    SELECT DISTINCT queue FROM returned WHERE run_at <= clock_timestamp()
)
SELECT (SELECT count(*) FROM taken), (SELECT count({wake}) FROM due)
