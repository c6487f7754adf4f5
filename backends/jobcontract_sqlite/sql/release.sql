-- Back to ready at now + :delay. The attempt number stays, its cost is given back.
UPDATE jobcontract_jobs INDEXED BY jobcontract_jobs_id
SET
    state = 'ready',
    token = NULL,
    lease_until = NULL,
    refunded = refunded + 1,
    run_at = (SELECT now FROM jobcontract_clock) + :delay
WHERE (id, token) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:leases))
    AND lease_until > (SELECT now FROM jobcontract_clock)
RETURNING id, run_at
