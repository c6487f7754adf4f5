-- Takes jobs that wait, and that no relay holds, out of the outbox: one row (id) for each.
-- Parameters: target; the ids as JSON.
DELETE FROM {outbox}
WHERE target = ?1 AND job_id IN (SELECT value FROM json_each(?2))
    AND lease_until <= (SELECT now FROM jobcontract_clock)
RETURNING job_id
