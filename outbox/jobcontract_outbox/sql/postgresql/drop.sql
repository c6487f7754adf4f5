-- Parked jobs are given up: one row (id) for each. Their ids and keys stay, as those of cancelled jobs.
-- Parameters: target; array of ids.
WITH dropped AS (
    DELETE FROM {outbox}
    WHERE target = %s AND parked_at IS NOT NULL AND job_id = ANY (%s::uuid[])
    RETURNING job_id
)
UPDATE {outbox_jobs} AS job SET cancelled_at = statement_timestamp()
FROM dropped WHERE job.job_id = dropped.job_id
RETURNING job.job_id::text
