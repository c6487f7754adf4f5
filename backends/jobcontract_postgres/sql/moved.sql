-- Not a statement of its own: the columns of a job that moves, as `Movable` gives them. `job` is a row of moving_jobs.
job.id::text, job.kind, job.queue, job.priority, job.run_at, job.max_attempts, job.idempotency_key,
       CASE WHEN job_keys.job_id = job.id THEN job_keys.fingerprint END, job.input_ref::text, job.headers::text,
       job.was, job.attempt, job.refunded, job.created_at, job.finished_at, job.last_error
