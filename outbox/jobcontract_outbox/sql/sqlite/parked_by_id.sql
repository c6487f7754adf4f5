-- Parked jobs by their ids. Parameters: target; the ids as JSON.
SELECT job_id, envelope, attempts, last_error, parked_at, due_at, ordering_key
FROM {outbox}
WHERE target = ?1 AND parked_at IS NOT NULL AND job_id IN (SELECT value FROM json_each(?2))
