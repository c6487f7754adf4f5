-- Parked jobs by their ids. Parameters: target; array of ids.
SELECT job_id::text, envelope, attempts, last_error, parked_at, due_at, ordering_key
FROM {outbox}
WHERE target = %s AND parked_at IS NOT NULL AND job_id = ANY (%s::uuid[])
