-- Jobs that wait, newest id first. Parameters: target; the id to begin before; limit.
SELECT job_id::text, envelope, available_at, created_at, last_error
FROM {outbox}
WHERE target = %s AND job_id < %s::uuid
ORDER BY job_id DESC
LIMIT %s
