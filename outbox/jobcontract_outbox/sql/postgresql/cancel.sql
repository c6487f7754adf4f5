-- Takes jobs that wait, and that no relay is publishing, out of the outbox, and keeps their ids and keys: one row (id)
-- for each. It does not wait for a relay: what that holds is as good as published.
-- Parameters: target; array of ids.
WITH free AS MATERIALIZED (
    SELECT seq FROM {outbox} WHERE target = %s AND job_id = ANY (%s::uuid[]) FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM {outbox} WHERE seq = ANY (ARRAY(SELECT seq FROM free)) RETURNING job_id
)
UPDATE {outbox_jobs} AS job SET cancelled_at = statement_timestamp()
FROM taken WHERE job.job_id = taken.job_id
RETURNING job.job_id::text
