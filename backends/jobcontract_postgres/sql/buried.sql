-- Tombstones, newest id first.
-- Parameters: id below which to begin, limit.
SELECT {moved}
FROM (
    SELECT * FROM {schema}.moving_jobs WHERE id < %s::uuid AND state = 'moved' ORDER BY id DESC LIMIT %s
) AS job
LEFT JOIN {schema}.job_keys USING (queue, idempotency_key)
ORDER BY job.id DESC
