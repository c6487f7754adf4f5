-- Jobs that hold a key, in the order of their ids: id, queue, key, fingerprint, created_at, whether it was cancelled.
-- Parameters: target; the id to begin behind; limit.
SELECT job_id, queue, idempotency_key, fingerprint, created_at, cancelled_at IS NOT NULL
FROM {outbox_jobs}
WHERE target = ?1 AND job_id > ?2 AND idempotency_key IS NOT NULL
ORDER BY job_id
LIMIT ?3
