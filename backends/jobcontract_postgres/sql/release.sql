-- Running to ready without the cost of an attempt, for each claim that still holds; one row (id, run_at) for each.
-- Parameters: arrays of id, token; delay.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%s::uuid[], %s::text[]) AS item (id, token)
    CROSS JOIN LATERAL (
        SELECT id
        FROM {schema}.live_jobs AS job
        WHERE job.id = item.id AND job.token::text = item.token AND job.lease_until > clock_timestamp()
        FOR UPDATE
    ) AS job
), returned AS (
    UPDATE {schema}.live_jobs AS job
    SET state = 'ready', token = NULL, lease_until = NULL, refunded = refunded + 1, run_at = clock_timestamp() + %s
    WHERE job.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING job.id, job.run_at, job.queue
), due AS (
    SELECT DISTINCT queue FROM returned WHERE run_at <= clock_timestamp()
)
SELECT id::text, run_at, (SELECT count({wake}) FROM due) FROM returned
