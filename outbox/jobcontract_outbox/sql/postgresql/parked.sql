-- Parked jobs, the latest first. Parameters: target; limit.
SELECT job_id::text, envelope, attempts, last_error, parked_at, due_at, ordering_key
FROM {outbox}
WHERE target = %s AND parked_at IS NOT NULL
ORDER BY parked_at DESC, seq DESC
LIMIT %s
