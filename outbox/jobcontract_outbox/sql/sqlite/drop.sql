-- Parked jobs are given up: one row (id) for each. Parameters: target; the ids as JSON.
DELETE FROM {outbox}
WHERE target = ?1 AND parked_at IS NOT NULL AND job_id IN (SELECT value FROM json_each(?2))
RETURNING job_id
