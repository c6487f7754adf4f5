-- Expired leases back to ready, due now, oldest first. Tells which of the jobs have no attempt left: `bury.sql` follows for those.
UPDATE jobcontract_jobs
SET
    state = 'ready',
    token = NULL,
    lease_until = NULL,
    run_at = (SELECT now FROM jobcontract_clock),
    last_error = 'the lease of attempt ' || attempt || ' ran out'
        || iif(attempt - refunded >= max_attempts, ', and it was the last', '')
WHERE rowid IN (
    SELECT rowid
    FROM jobcontract_jobs
    WHERE state = 'running'
        AND lease_until <= (SELECT now FROM jobcontract_clock)
    ORDER BY lease_until
    LIMIT :limit
)
RETURNING id, attempt - refunded >= max_attempts
