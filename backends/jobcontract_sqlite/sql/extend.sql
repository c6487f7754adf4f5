-- The lease ends at now + :lease; an expired one is not revived.
UPDATE jobcontract_jobs
SET lease_expires_at = held.now + :lease
FROM (
    SELECT clock.now, json_extract(lease.value, '$[0]') AS id, json_extract(lease.value, '$[1]') AS token
    FROM jobcontract_clock AS clock
    CROSS JOIN json_each(:leases) AS lease
) AS held
WHERE jobcontract_jobs.id = held.id
    AND jobcontract_jobs.token = held.token
    AND jobcontract_jobs.lease_expires_at > held.now
RETURNING id, lease_expires_at
