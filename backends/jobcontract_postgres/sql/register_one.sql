-- `register` for one job that comes alone, which is what most producers do: without arrays and what sorts them, it costs the server
-- three quarters. What the parts are for is told in register.sql.
-- Parameters: id, kind, queue, priority, run_at, max_attempts, key, fingerprint, input_ref, headers; the earliest instant at which
-- the job can have ended.
WITH pass AS MATERIALIZED (
    SELECT set_config({pass}, 'open', true)
    FROM {schema}.gate
    WHERE last_value & 2 = 2 OR current_setting({pass}, true) = 'open'
), incoming AS MATERIALIZED (
    SELECT %s::uuid AS id, %s::text AS kind, %s::text AS queue, %s::smallint AS priority, %s::timestamptz AS run_at,
           %s::integer AS max_attempts, %s::text AS idempotency_key, %s::bytea AS fingerprint, %s::text AS input_ref,
           %s::text AS headers
    FROM pass
), keys AS (
    INSERT INTO {schema}.job_keys (queue, idempotency_key, job_id, fingerprint)
    SELECT queue, idempotency_key, id, fingerprint
    FROM incoming
    WHERE idempotency_key IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING job_id
), created AS (
    INSERT INTO {schema}.live_jobs (
        id, run_at, created_at, max_attempts, priority, queue, kind, idempotency_key, headers, input_ref
    )
    SELECT id, coalesce(run_at, statement_timestamp()), statement_timestamp(), max_attempts, priority, queue, kind,
           idempotency_key, headers::json, input_ref::json
    FROM incoming
    WHERE (idempotency_key IS NULL OR EXISTS (SELECT FROM keys))
      AND CASE current_setting('transaction_isolation')
              WHEN 'read committed' THEN true
              ELSE NOT EXISTS (SELECT FROM {schema}.live_jobs AS known WHERE known.id = incoming.id)
          END
    ON CONFLICT DO NOTHING
    RETURNING id, queue, run_at
)
SELECT id::text, CASE WHEN run_at <= statement_timestamp() THEN {wake} END
FROM (SELECT id, queue, run_at, %s::timestamptz AS since FROM created) AS created
WHERE CASE
          WHEN {unchanged}
           AND NOT EXISTS (SELECT FROM {schema}.done_jobs WHERE done_jobs.id = created.id AND finished_at >= since)
           AND NOT EXISTS (SELECT FROM {schema}.dead_jobs WHERE dead_jobs.id = created.id)
           AND NOT EXISTS (SELECT FROM {schema}.moving_jobs WHERE moving_jobs.id = created.id)
          THEN true
          ELSE {schema}.withdraw_ended(ARRAY[created.id], since) = '{}'
      END
UNION ALL
SELECT NULL, NULL WHERE NOT EXISTS (SELECT FROM pass)
