-- The lease ends at now + :lease; an expired one is not revived.
UPDATE jobcontract_jobs INDEXED BY jobcontract_jobs_id
SET lease_until = (SELECT now FROM jobcontract_clock) + :lease
WHERE (id, token) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:leases))
    AND lease_until > (SELECT now FROM jobcontract_clock)
RETURNING id, lease_until
