-- Parked jobs go again, with all their attempts: one row (id) for each. Parameters: target; the ids as JSON.
UPDATE {outbox} SET parked_at = NULL, attempts = 0, available_at = (SELECT now FROM jobcontract_clock)
WHERE target = ?1 AND parked_at IS NOT NULL AND job_id IN (SELECT value FROM json_each(?2))
RETURNING job_id
