-- Jobs that wait, newest id first. Parameters: target; the id to begin before; limit.
SELECT job_id, envelope, available_at, created_at, last_error
FROM {outbox}
WHERE target = ?1 AND job_id < ?2
ORDER BY job_id DESC
LIMIT ?3
