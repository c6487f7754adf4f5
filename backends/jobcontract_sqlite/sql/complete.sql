-- Copy to the history what :leases rightly hold; `leave.sql` then takes it out of the live table.
-- OR REPLACE: a row that somebody put there by hand must not stop the others.
INSERT OR REPLACE INTO jobcontract_done (
    id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    job.id, job.queue, job.kind, job.priority, job.run_at, job.attempt, job.refunded, job.max_attempts,
    job.created_at, clock.now, job.idempotency_key, job.last_error, job.headers, job.input_ref
FROM jobcontract_clock AS clock
CROSS JOIN json_each(:leases) AS lease
CROSS JOIN jobcontract_jobs AS job INDEXED BY jobcontract_jobs_id ON job.id = json_extract(lease.value, '$[0]')
WHERE job.token = json_extract(lease.value, '$[1]')
    AND job.lease_until > clock.now
RETURNING id
