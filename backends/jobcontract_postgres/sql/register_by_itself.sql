-- Registers one job, under a new id (a UUIDv7) and for the minute in which it is run. Not run by this library: its parameters are
-- set in as literals, and the text is given to pg_cron. While jobs move to another store it registers nothing.
-- Parameters: queue, key, fingerprint; max_attempts, priority, kind, headers, input_ref.
WITH run AS MATERIALIZED (
    SELECT statement_timestamp() AS now,
           date_trunc('minute', statement_timestamp()) AS due,
           to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"') AS minute,
           uuid_send(gen_random_uuid()) AS random,
           substring(int8send((extract(epoch FROM statement_timestamp()) * 1000)::bigint) FROM 3) AS milliseconds
), keys AS (
    INSERT INTO {schema}.job_keys (queue, idempotency_key, job_id, fingerprint)
    SELECT %s, replace(%s, '{minute}', minute),
           encode(
               set_byte(overlay(random PLACING milliseconds FROM 1), 6, get_byte(random, 6) & 15 | 112), 'hex'
           )::uuid,
           %s::bytea
    FROM run
    WHERE (SELECT last_value & 2 = 2 FROM {schema}.gate)
    ON CONFLICT DO NOTHING
    RETURNING queue, idempotency_key, job_id
), created AS (
    INSERT INTO {schema}.live_jobs (
        id, run_at, created_at, max_attempts, priority, queue, kind, idempotency_key, headers, input_ref
    )
    SELECT keys.job_id, run.due, run.now, %s, %s, keys.queue, %s, keys.idempotency_key,
           replace(%s, '{minute}', run.minute)::json, %s::json
    FROM keys, run
    RETURNING queue
)
SELECT count({wake}) FROM created
