-- Takes jobs that wait out of the outbox, and keeps their ids and keys: one row (id) for each.
-- Parameters: target; array of ids.
WITH taken AS (
    DELETE FROM {outbox} WHERE target = %s AND job_id = ANY (%s::uuid[]) RETURNING job_id
)
UPDATE {outbox_jobs} AS job SET cancelled_at = statement_timestamp()
FROM taken WHERE job.job_id = taken.job_id
RETURNING job.job_id::text
