-- Back to ready, later: a failure that leaves the job an attempt.
UPDATE jobcontract_jobs INDEXED BY jobcontract_jobs_id
SET
    state = 'ready',
    token = NULL,
    lease_until = NULL,
    run_at = (SELECT now FROM jobcontract_clock) + :retry_in,
    last_error = :error
WHERE id = :id
    AND token = :token
    AND lease_until > (SELECT now FROM jobcontract_clock)
    AND attempt - refunded < max_attempts
RETURNING run_at
