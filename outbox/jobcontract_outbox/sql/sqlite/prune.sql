-- Forgets published and cancelled jobs that are past the retention, among the next ones by id: one row for each.
-- Parameters: the id to begin behind; limit; retention in seconds.
DELETE FROM {outbox_jobs}
WHERE job_id IN (SELECT job_id FROM {outbox_jobs} WHERE job_id > ?1 ORDER BY job_id LIMIT ?2)
    AND created_at < (SELECT now FROM jobcontract_clock) - CAST(?3 * 1000000 AS INTEGER)
    AND NOT EXISTS (SELECT 1 FROM {outbox} AS waiting WHERE waiting.job_id = {outbox_jobs}.job_id)
RETURNING job_id
