-- What the outbox knows of jobs: id, and cancelled, ready (it waits here) or moved (it was published).
-- Parameters: target; array of ids.
SELECT job.job_id::text,
       CASE
           WHEN cancelled_at IS NOT NULL THEN 'cancelled'
           WHEN EXISTS (SELECT FROM {outbox} AS waiting WHERE waiting.job_id = job.job_id) THEN 'ready'
           ELSE 'moved'
       END
FROM {outbox_jobs} AS job
WHERE target = %s AND job_id = ANY (%s::uuid[])
