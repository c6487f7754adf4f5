-- Back to ready, later: those failures that have attempts left.
UPDATE jobcontract_jobs
SET
    state = 'ready',
    token = NULL,
    lease_expires_at = NULL,
    run_at = failed.now + failed.retry_in,
    last_error = failed.error
FROM (
    SELECT
        clock.now,
        json_extract(failure.value, '$[0]') AS id,
        json_extract(failure.value, '$[1]') AS token,
        json_extract(failure.value, '$[2]') AS error,
        json_extract(failure.value, '$[3]') AS retry_in,
        json_extract(failure.value, '$[4]') AS permanent
    FROM jobcontract_clock AS clock
    CROSS JOIN json_each(:failures) AS failure
) AS failed
WHERE jobcontract_jobs.id = failed.id
    AND jobcontract_jobs.token = failed.token
    AND jobcontract_jobs.lease_expires_at > failed.now
    AND NOT failed.permanent
    AND jobcontract_jobs.attempt - jobcontract_jobs.refunded < jobcontract_jobs.max_attempts
RETURNING id, run_at
