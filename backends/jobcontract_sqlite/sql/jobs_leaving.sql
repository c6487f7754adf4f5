-- Jobs on their way, with the fingerprints of the keys that they hold; a part of statements.
SELECT
    job.id, job.kind, job.queue, job.priority, job.run_at, job.max_attempts, job.idempotency_key,
    iif(holder.job_id = job.id, holder.fingerprint, NULL), job.input_ref, job.headers,
    job.was, job.attempt, job.refunded, job.created_at, job.finished_at, job.last_error
FROM jobcontract_moving AS job
LEFT JOIN jobcontract_keys AS holder
    ON holder.idempotency_key = job.idempotency_key
    AND holder.queue = job.queue
