-- Jobs that are hidden and no tombstones yet.
-- Parameter: limit.
SELECT {moved}
FROM (
    SELECT * FROM {schema}.moving_jobs WHERE state = 'moving' AND was <> 'moving' ORDER BY id LIMIT %s
) AS job
LEFT JOIN {schema}.job_keys USING (queue, idempotency_key)
