-- Copy ready jobs to the dead table, as :state; `leave.sql` follows. Gives the ids that were ready.
-- OR REPLACE: a row that somebody put there by hand must not stop the others.
INSERT OR REPLACE INTO jobcontract_dead (
    id, queue, kind, priority, run_at, state, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    job.id, job.queue, job.kind, job.priority, job.run_at, :state, job.attempt, job.refunded, job.max_attempts,
    job.created_at, clock.now, job.idempotency_key, job.last_error, job.headers, job.input_ref
FROM jobcontract_clock AS clock
CROSS JOIN json_each(:ids) AS wanted
CROSS JOIN jobcontract_jobs AS job INDEXED BY jobcontract_jobs_id ON job.id = wanted.value
WHERE job.state = 'ready'
RETURNING id
