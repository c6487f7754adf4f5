-- A job that waits in the outbox. Parameters: target; id.
SELECT envelope, available_at, created_at, last_error FROM {outbox} WHERE target = %s AND job_id = %s::uuid
