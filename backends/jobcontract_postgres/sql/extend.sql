-- Renews the lease of each claim that still holds; one row (id, end of the lease) for each.
-- Parameters: arrays of id, token; lease.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM unnest(%s::uuid[], %s::text[]) AS item (id, token)
    CROSS JOIN LATERAL (
        SELECT id
        FROM {schema}.live_jobs AS job
        WHERE job.id = item.id AND job.token::text = item.token AND job.lease_until > clock_timestamp()
        FOR UPDATE
    ) AS job
)
UPDATE {schema}.live_jobs AS job
SET lease_until = clock_timestamp() + %s
WHERE job.id = ANY (ARRAY(SELECT id FROM held))
RETURNING job.id::text, job.lease_until
