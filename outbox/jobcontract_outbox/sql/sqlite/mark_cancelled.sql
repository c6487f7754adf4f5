-- Keeps the ids and keys of cancelled jobs. Parameter: the ids as JSON.
UPDATE {outbox_jobs} SET cancelled_at = (SELECT now FROM jobcontract_clock)
WHERE job_id IN (SELECT value FROM json_each(?1))
