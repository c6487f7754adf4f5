-- Says who stands in the way of the jobs that `register` did not create: (position, holder's id, its state, whether its
-- kind or input differs). The holder's id is null when it has gone meanwhile: then registering again is right.
-- Parameters: arrays of id, queue, key, fingerprint.
--
-- A key that was just taken for an id which is known under another key is given back here.
WITH incoming AS MATERIALIZED (
    SELECT *
    FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[]) WITH ORDINALITY
        AS job (id, queue, idempotency_key, fingerprint, position)
), holder AS MATERIALIZED (
    SELECT incoming.position,
           CASE WHEN incoming.idempotency_key IS NULL THEN incoming.id ELSE job_keys.job_id END AS job_id,
           coalesce(job_keys.fingerprint <> incoming.fingerprint, false) AS conflict
    FROM incoming
    LEFT JOIN {schema}.job_keys USING (queue, idempotency_key)
), returned AS (
    DELETE FROM {schema}.job_keys
    USING incoming, {schema}.jobs AS record
    WHERE job_keys.queue = incoming.queue
      AND job_keys.idempotency_key = incoming.idempotency_key
      AND job_keys.job_id = incoming.id
      AND record.id = incoming.id
      AND (record.queue, record.idempotency_key) IS DISTINCT FROM (incoming.queue, incoming.idempotency_key)
)
SELECT holder.position, record.id::text, record.state, holder.conflict
FROM holder
LEFT JOIN {schema}.jobs AS record ON record.id = holder.job_id
