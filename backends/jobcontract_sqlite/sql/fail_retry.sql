-- Back to ready, later: those failures that have attempts left.
UPDATE jobcontract_jobs
SET
    state = 'ready',
    token = NULL,
    lease_until = NULL,
    run_at = (SELECT now FROM jobcontract_clock) + json_extract(failure.value, '$[3]'),
    last_error = json_extract(failure.value, '$[2]')
FROM json_each(:failures) AS failure
WHERE jobcontract_jobs.id = json_extract(failure.value, '$[0]')
    AND jobcontract_jobs.token = json_extract(failure.value, '$[1]')
    AND jobcontract_jobs.lease_until > (SELECT now FROM jobcontract_clock)
    AND NOT json_extract(failure.value, '$[4]')
    AND jobcontract_jobs.attempt - jobcontract_jobs.refunded < jobcontract_jobs.max_attempts
RETURNING id, run_at
