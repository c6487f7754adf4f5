-- Dead or cancelled to ready, due now, with every attempt to spend again; a ready job with a run_at ahead becomes due now.
-- One row (id) for each job that is ready by it.
-- Parameters: array of id, sorted; the same array.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%s::uuid[]) AS item (id)
    CROSS JOIN LATERAL (SELECT id FROM {schema}.dead_jobs AS job WHERE job.id = item.id FOR UPDATE) AS job
), taken AS (
    DELETE FROM {schema}.dead_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING job.*
), revived AS (
    INSERT INTO {schema}.live_jobs (
        id, run_at, created_at, attempt, refunded, max_attempts, priority, queue, kind, idempotency_key, last_error,
        headers, input_ref
    )
    SELECT id, clock_timestamp(), created_at, attempt, attempt, max_attempts, priority, queue, kind, idempotency_key,
           last_error, headers, input_ref
    FROM taken
    ON CONFLICT (id) DO NOTHING
    RETURNING id, queue
), advanced AS (
    UPDATE {schema}.live_jobs AS job
    SET run_at = clock_timestamp()
    FROM (
        SELECT waiting.id
        FROM unnest(%s::uuid[]) AS item (id)
        CROSS JOIN LATERAL (
            SELECT id
            FROM {schema}.live_jobs AS job
            WHERE job.id = item.id AND job.state = 'ready' AND job.run_at > clock_timestamp()
            FOR UPDATE
        ) AS waiting
    ) AS held
    WHERE job.id = held.id
    RETURNING job.id, job.queue
), ready AS (
    SELECT id, queue FROM revived UNION ALL SELECT id, queue FROM advanced
), due AS (
    SELECT DISTINCT queue FROM ready
)
SELECT id::text, (SELECT count({wake}) FROM due) FROM ready
