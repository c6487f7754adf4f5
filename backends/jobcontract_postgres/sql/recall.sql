-- Who stands in the place of each job, if anybody does: (position, id, state, whether its kind or input differs).
-- Parameters: arrays of id, queue, key, fingerprint. As register_lookup.sql, and only looks.
SELECT incoming.position, record.id::text, record.state,
       coalesce(job_keys.job_id = record.id AND job_keys.fingerprint <> incoming.fingerprint, false)
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[]) WITH ORDINALITY
    AS incoming (id, queue, idempotency_key, fingerprint, position)
LEFT JOIN {schema}.job_keys USING (queue, idempotency_key)
CROSS JOIN LATERAL (
    SELECT id, state FROM {schema}.jobs AS job WHERE job.id = incoming.id
    UNION ALL
    SELECT id, state FROM {schema}.jobs AS job WHERE job.id = job_keys.job_id
    LIMIT 1
) AS record
