-- Copy to the dead jobs those failures that are permanent or have spent the last attempt; `leave.sql` follows.
-- OR REPLACE: a row that somebody put there by hand must not stop the others.
INSERT OR REPLACE INTO jobcontract_dead (
    id, queue, kind, priority, run_at, state, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    job.id, job.queue, job.kind, job.priority, job.run_at, 'dead', job.attempt, job.refunded, job.max_attempts, job.created_at, clock.now,
    job.idempotency_key, json_extract(failure.value, '$[2]'), job.headers, job.input_ref
FROM jobcontract_clock AS clock
CROSS JOIN json_each(:failures) AS failure
CROSS JOIN jobcontract_jobs AS job ON job.id = json_extract(failure.value, '$[0]')
WHERE job.token = json_extract(failure.value, '$[1]')
    AND job.lease_until > clock.now
    AND (json_extract(failure.value, '$[4]') OR job.attempt - job.refunded >= job.max_attempts)
RETURNING id
