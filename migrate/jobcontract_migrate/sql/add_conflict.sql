-- Parameters: number, job, holder, queue, key.
INSERT INTO {move_conflicts} (number, job_id, holder_id, queue, idempotency_key)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING
