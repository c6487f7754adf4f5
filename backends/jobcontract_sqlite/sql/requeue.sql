-- Dead and cancelled jobs back to ready, due now, with all attempts to spend again; `requeue_leave.sql` follows.
INSERT INTO jobcontract_jobs (
    id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    job.id, job.queue, job.kind, job.priority, clock.now, job.attempt, job.attempt, job.max_attempts, job.created_at,
    job.idempotency_key, job.last_error, job.headers, job.input_ref
FROM jobcontract_clock AS clock
CROSS JOIN json_each(:ids) AS wanted
CROSS JOIN jobcontract_dead AS job INDEXED BY jobcontract_dead_id ON job.id = wanted.value
WHERE true
ON CONFLICT DO NOTHING
RETURNING id
