-- Expired leases back to ready, due now, oldest first. Tells which of the jobs have no attempt left: for those,
-- `bury.sql` follows.
UPDATE jobcontract_jobs INDEXED BY jobcontract_jobs_id
SET
    state = 'ready',
    token = NULL,
    lease_until = NULL,
    run_at = (SELECT now FROM jobcontract_clock),
    last_error = 'the lease of attempt ' || attempt || ' ran out'
        || iif(attempt - refunded >= max_attempts, ', and it was the last', '')
WHERE id IN (
    SELECT id
    FROM jobcontract_jobs INDEXED BY jobcontract_jobs_running
    WHERE state = 'running'
        AND lease_until <= (SELECT now FROM jobcontract_clock)
    ORDER BY lease_until
    LIMIT :limit
)
RETURNING id, attempt - refunded >= max_attempts
