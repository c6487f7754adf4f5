-- Parked jobs go again, with all their attempts: one row (id) for each. Parameters: target; array of ids.
UPDATE {outbox} SET parked_at = NULL, attempts = 0, available_at = statement_timestamp()
WHERE target = %s AND parked_at IS NOT NULL AND job_id = ANY (%s::uuid[])
RETURNING job_id::text
