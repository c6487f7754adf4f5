-- Expired leases back to ready, due now, oldest first. Tells which of the jobs have no attempt left: `bury.sql` follows for those.
UPDATE jobcontract_jobs
SET
    state = 'ready',
    token = NULL,
    lease_expires_at = NULL,
    run_at = (SELECT now FROM jobcontract_clock),
    last_error = 'the lease of attempt ' || attempt || ' ran out: its worker was killed, or stopped renewing it'
WHERE rowid IN (
    SELECT rowid
    FROM jobcontract_jobs
    WHERE state = 'running'
        AND lease_expires_at <= (SELECT now FROM jobcontract_clock)
    ORDER BY lease_expires_at
    LIMIT :limit
)
RETURNING id, attempt - refunded >= max_attempts
