-- What the ledger knows of jobs that register.sql did not store: position in the batch, id of the job that stands in
-- its place, whether that one is held by key and differs, and its state (null: the outbox can't tell any more).
-- Parameters: arrays of id, queue, key, fingerprint; target.
SELECT wanted.position::integer, found.job_id::text,
       found.job_id <> wanted.id AND found.fingerprint IS DISTINCT FROM wanted.fingerprint,
       CASE
           WHEN found.cancelled_at IS NOT NULL THEN 'cancelled'
           WHEN EXISTS (SELECT FROM {outbox} AS waiting WHERE waiting.job_id = found.job_id) THEN 'ready'
       END
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bytea[])
     WITH ORDINALITY AS wanted (id, queue, idempotency_key, fingerprint, position)
CROSS JOIN LATERAL (
    SELECT * FROM (
        (SELECT 1 AS rank, job.* FROM {outbox_jobs} AS job WHERE job.job_id = wanted.id)
        UNION ALL
        (
            SELECT 2, job.*
            FROM {outbox_jobs} AS job
            WHERE job.target = %s AND job.queue = wanted.queue AND job.idempotency_key = wanted.idempotency_key
        )
    ) AS candidate
    ORDER BY rank
    LIMIT 1
) AS found
