-- Expired leases to ready, or to dead when the attempts are spent; one row: (how many ready, how many dead).
-- Parameter: limit.
--
-- Expiry is a condition of the lock that the write is made under, so a job that was completed or renewed in between is left
-- alone. Locked rows are passed over.
WITH expired AS MATERIALIZED (
    SELECT id, attempt - refunded >= max_attempts AS ends
    FROM {schema}.live_jobs
    WHERE state = 'running' AND lease_until <= clock_timestamp()
    LIMIT %s
    FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM {schema}.live_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM expired WHERE ends))
    RETURNING job.*
), buried AS (
    INSERT INTO {schema}.dead_jobs (
        id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
        idempotency_key, last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, clock_timestamp(), attempt, refunded, max_attempts, priority, 'dead', queue, kind,
           idempotency_key, 'the lease of attempt ' || attempt || ' ran out, and it was the last', headers, input_ref
    FROM ended
    ON CONFLICT (id) DO NOTHING
), returned AS (
    UPDATE {schema}.live_jobs AS job
    SET state = 'ready', token = NULL, lease_until = NULL, run_at = clock_timestamp(),
        last_error = 'the lease of attempt ' || attempt || ' ran out'
    WHERE job.id = ANY (ARRAY(SELECT id FROM expired WHERE NOT ends))
    RETURNING job.queue
), due AS (
    SELECT DISTINCT queue FROM returned
)
SELECT (SELECT count(*) FROM returned), (SELECT count(*) FROM ended), (SELECT count({wake}) FROM due)
