-- Says who stands in the way of the jobs that `register` did not create: (position, holder's id, its state, whether its
-- kind or input differs). The holder's id is null when there is none any more: then registering again is right.
-- Parameters: arrays of id, queue, key, fingerprint.
--
-- On the way it frees keys that belong to no job: of one that was deleted by hand, or that `register` just took for an id
-- which is known under another key.
WITH incoming AS MATERIALIZED (
    SELECT *
    FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[]) WITH ORDINALITY
        AS job (id, queue, idempotency_key, fingerprint, position)
), holder AS MATERIALIZED (
    SELECT incoming.position, incoming.id, incoming.queue, incoming.idempotency_key, record.id AS holder_id, record.state,
           coalesce(job_keys.fingerprint <> incoming.fingerprint, false) AS conflict,
           (record.queue, record.idempotency_key) IS NOT DISTINCT FROM (incoming.queue, incoming.idempotency_key) AS holds
    FROM incoming
    LEFT JOIN {schema}.job_keys USING (queue, idempotency_key)
    LEFT JOIN {schema}.jobs AS record
        ON record.id = CASE WHEN incoming.idempotency_key IS NULL THEN incoming.id ELSE job_keys.job_id END
), freed AS (
    DELETE FROM {schema}.job_keys
    USING holder
    WHERE job_keys.queue = holder.queue
      AND job_keys.idempotency_key = holder.idempotency_key
      AND NOT holder.holds
)
SELECT position, CASE WHEN holds OR holder_id = id THEN holder_id::text END, state, conflict
FROM holder
