-- Stores jobs of another store as they were there: one row (id, stored, whether the job holds its key) for each.
-- Parameters: arrays of id, kind, queue, priority, run_at, max_attempts, key, fingerprint, input_ref, headers, state, attempt,
-- refunded, created_at, finished_at, last_error; epoch.
--
-- A job that is known as a placeholder or a tombstone is stored in its place. Nothing waits here but for a registration with
-- the same key that is not committed yet.
WITH incoming AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %s::uuid[], %s::text[], %s::text[], %s::smallint[], %s::timestamptz[], %s::integer[], %s::text[], %s::bytea[],
        %s::text[], %s::text[], %s::text[], %s::integer[], %s::integer[], %s::timestamptz[], %s::timestamptz[], %s::text[]
    ) AS job (
        id, kind, queue, priority, run_at, max_attempts, idempotency_key, fingerprint, input_ref, headers, state, attempt,
        refunded, created_at, finished_at, last_error
    )
    WHERE (SELECT last_value / 4 FROM {schema}.gate) = %s
), fresh AS MATERIALIZED (
    SELECT *
    FROM incoming
    WHERE NOT EXISTS (SELECT FROM {schema}.live_jobs AS known WHERE known.id = incoming.id)
      AND NOT EXISTS (SELECT FROM {schema}.dead_jobs AS known WHERE known.id = incoming.id)
      AND NOT EXISTS (SELECT FROM {schema}.done_jobs AS known WHERE known.id = incoming.id)
      AND NOT EXISTS (
          SELECT FROM {schema}.moving_jobs AS known
          WHERE known.id = incoming.id AND (incoming.state = 'moving' OR (known.state = 'moving' AND known.was <> 'moving'))
      )
), keys AS (
    INSERT INTO {schema}.job_keys (queue, idempotency_key, job_id, fingerprint)
    SELECT queue, idempotency_key, id, fingerprint
    FROM fresh
    WHERE fingerprint IS NOT NULL
    ORDER BY queue, idempotency_key
    ON CONFLICT DO NOTHING
    RETURNING job_id
), replaced AS (
    DELETE FROM {schema}.moving_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM fresh WHERE state <> 'moving'))
), reserved AS (
    INSERT INTO {schema}.moving_jobs (
        id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, was, queue, kind,
        idempotency_key, last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, 'moving', 'moving', queue, kind,
           idempotency_key, last_error, headers::json, input_ref::json
    FROM fresh
    WHERE state = 'moving'
), ready AS (
    INSERT INTO {schema}.live_jobs (
        id, run_at, created_at, attempt, refunded, max_attempts, priority, queue, kind, idempotency_key, last_error,
        headers, input_ref
    )
    SELECT id, run_at, created_at, attempt, refunded, max_attempts, priority, queue, kind, idempotency_key, last_error,
           headers::json, input_ref::json
    FROM fresh
    WHERE state = 'ready'
    RETURNING queue, run_at
), dead AS (
    INSERT INTO {schema}.dead_jobs (
        id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
        idempotency_key, last_error, headers, input_ref
    )
    SELECT id, run_at, created_at, finished_at, attempt, refunded, max_attempts, priority, state, queue, kind,
           idempotency_key, last_error, headers::json, input_ref::json
    FROM fresh
    WHERE state IN ('dead', 'cancelled')
), done AS (
    INSERT INTO {schema}.done_jobs (
        id, run_at, created_at, finished_at, attempt, max_attempts, priority, queue, kind, idempotency_key, last_error,
        headers, input_ref
    )
    SELECT id, run_at, created_at, finished_at, attempt, max_attempts, priority, queue, kind, idempotency_key, last_error,
           headers::json, input_ref::json
    FROM fresh
    WHERE state = 'done'
), due AS (
    SELECT DISTINCT queue FROM ready WHERE run_at <= clock_timestamp()
)
SELECT incoming.id::text,
       incoming.id IN (SELECT id FROM fresh),
       incoming.id IN (SELECT job_id FROM keys),
       (SELECT count({wake}) FROM due)
FROM incoming
