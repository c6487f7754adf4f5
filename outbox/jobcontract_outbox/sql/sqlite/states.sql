-- What the outbox knows of jobs: id, and cancelled, ready (it waits here) or moved (it was published).
-- Parameters: target; the ids as JSON.
SELECT job.job_id,
       CASE
           WHEN cancelled_at IS NOT NULL THEN 'cancelled'
           WHEN EXISTS (SELECT 1 FROM {outbox} AS waiting WHERE waiting.job_id = job.job_id) THEN 'ready'
           ELSE 'moved'
       END
FROM {outbox_jobs} AS job
WHERE target = ?1 AND job_id IN (SELECT value FROM json_each(?2))
