-- Running to ready, or to dead when the failure is permanent or the attempts are spent, for each claim that still holds.
-- One row (id, state, run_at) for each job that was moved.
-- Parameters: arrays of id, token, error, retry_in, permanent.
WITH held AS MATERIALIZED (
    SELECT job.id, item.error, item.retry_in, item.permanent OR job.attempt - job.refunded >= job.max_attempts AS ends
    FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::interval[], %s::boolean[])
        AS item (id, token, error, retry_in, permanent)
    CROSS JOIN LATERAL (
        SELECT id, attempt, refunded, max_attempts
        FROM {schema}.live_jobs AS job
        WHERE job.id = item.id AND job.token::text = item.token AND job.lease_until > clock_timestamp()
        FOR UPDATE
    ) AS job
), ended AS (
    DELETE FROM {schema}.live_jobs AS job
    USING held
    WHERE job.id = held.id AND held.ends
    RETURNING job.*, held.error
), buried AS (
    INSERT INTO {schema}.dead_jobs (
        id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
        idempotency_key, last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, clock_timestamp(), attempt, refunded, max_attempts, priority, 'dead', queue, kind,
           idempotency_key, error, headers, input_ref
    FROM ended
    ON CONFLICT (id) DO NOTHING
), returned AS (
    UPDATE {schema}.live_jobs AS job
    SET state = 'ready', token = NULL, lease_until = NULL, run_at = clock_timestamp() + held.retry_in,
        last_error = held.error
    FROM held
    WHERE job.id = held.id AND NOT held.ends
    RETURNING job.id, job.run_at, job.queue
), due AS (
    SELECT DISTINCT queue FROM returned WHERE run_at <= clock_timestamp()
)
SELECT id::text, 'dead', NULL::timestamptz, NULL::bigint FROM ended
UNION ALL
SELECT id::text, 'ready', run_at, (SELECT count({wake}) FROM due) FROM returned
