-- Enters the jobs whose id and key are new to the outbox: one row (id) for each.
-- Parameters: target; arrays of id, queue, key, fingerprint. In the order of register.sql, which see.
INSERT INTO {outbox_jobs} (job_id, target, queue, idempotency_key, fingerprint)
SELECT id, %s, queue, idempotency_key, fingerprint
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[])
     WITH ORDINALITY AS job (id, queue, idempotency_key, fingerprint, position)
ORDER BY queue, coalesce(idempotency_key, id::text), position
ON CONFLICT DO NOTHING
RETURNING job_id::text
