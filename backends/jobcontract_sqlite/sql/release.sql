-- Back to ready at now + :delay. The attempt number stays, its cost is given back.
UPDATE jobcontract_jobs
SET
    state = 'ready',
    token = NULL,
    lease_expires_at = NULL,
    refunded = refunded + 1,
    run_at = held.now + :delay
FROM (
    SELECT clock.now, json_extract(lease.value, '$[0]') AS id, json_extract(lease.value, '$[1]') AS token
    FROM jobcontract_clock AS clock
    CROSS JOIN json_each(:leases) AS lease
) AS held
WHERE jobcontract_jobs.id = held.id
    AND jobcontract_jobs.token = held.token
    AND jobcontract_jobs.lease_expires_at > held.now
RETURNING id, run_at
