-- Stores the jobs whose id and key are free, and says which: one row (id) for each job that it created.
-- Parameters: arrays of id, kind, queue, priority, run_at, max_attempts, key, fingerprint, input_ref, headers; the earliest instant
-- at which one of the jobs can have ended.
--
-- The rows come sorted by queue and key: the insert of a key waits for a transaction that holds it (and goes ahead when that one
-- rolls back), so two batches that share keys must ask for them in one order. The first of two rows with one key wins.
-- NOT EXISTS is for callers under REPEATABLE READ: a job that ran to its end since their snapshot was taken has left its id free,
-- and withdraw_ended can't see there that it ended.
-- While the store is shut (see the sequence `gate` in 001_jobs.sql) nothing is stored, and a row without an id says so. A transaction that was let in once
-- keeps its pass, a setting that ends with it: whoever waits for its end must not wait for one that waits for the store to open.
WITH pass AS MATERIALIZED (
    SELECT set_config({pass}, 'open', true)
    FROM {schema}.gate
    WHERE last_value & 2 = 2 OR current_setting({pass}, true) = 'open'
), incoming AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %s::uuid[], %s::text[], %s::text[], %s::smallint[], %s::timestamptz[], %s::integer[], %s::text[], %s::bytea[],
        %s::text[], %s::text[]
    ) AS job (
        id, kind, queue, priority, run_at, max_attempts, idempotency_key, fingerprint, input_ref, headers
    )
    WHERE EXISTS (SELECT FROM pass)
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
    WHERE (idempotency_key IS NULL OR id IN (SELECT job_id FROM keys))
      AND CASE current_setting('transaction_isolation')
              WHEN 'read committed' THEN true
              ELSE NOT EXISTS (SELECT FROM {schema}.live_jobs AS known WHERE known.id = incoming.id)
          END
    ON CONFLICT DO NOTHING
    RETURNING id, queue, run_at
), due AS (
    SELECT DISTINCT queue FROM created WHERE run_at <= statement_timestamp()
), all_created AS MATERIALIZED (
    SELECT array_agg(id) AS ids FROM created
), ended AS MATERIALIZED (
    SELECT {ended} AS ids FROM all_created, (SELECT %s::timestamptz AS since) AS earliest
)
SELECT id::text, (SELECT count({wake}) FROM due)
FROM created
WHERE id <> ALL ((SELECT ids FROM ended)::uuid[])
UNION ALL
SELECT NULL, NULL WHERE NOT EXISTS (SELECT FROM pass)
