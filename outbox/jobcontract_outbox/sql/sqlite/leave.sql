-- Jobs that wait here are elsewhere now: one row for each that was. Parameters: target; the ids as JSON.
DELETE FROM {outbox} WHERE target = ?1 AND job_id IN (SELECT value FROM json_each(?2)) RETURNING job_id
