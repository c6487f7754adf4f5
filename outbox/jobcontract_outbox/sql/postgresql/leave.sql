-- Jobs that wait here are elsewhere now: one row for each that was. Waits for a relay that publishes one: its target has it then, too.
-- Parameters: target; array of ids.
DELETE FROM {outbox} WHERE target = %s AND job_id = ANY (%s::uuid[]) RETURNING job_id
