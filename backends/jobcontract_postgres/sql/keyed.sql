-- Jobs that hold a key, by id; those that are done as such, the others as placeholders.
-- Parameters: id behind which to begin, limit.
WITH held AS MATERIALIZED (
    SELECT job_id, fingerprint
    FROM {schema}.job_keys
    WHERE job_id > %s::uuid
    ORDER BY job_id
    LIMIT %s
)
SELECT job.id::text, job.kind, job.queue, job.priority, job.run_at, job.max_attempts, job.idempotency_key,
       held.fingerprint, job.input_ref::text, job.headers::text,
       CASE job.state WHEN 'done' THEN 'done' WHEN 'moved' THEN 'moved' ELSE 'moving' END,
       job.attempt, job.refunded, job.created_at, job.finished_at, job.last_error, held.job_id::text
FROM held
LEFT JOIN {schema}.jobs AS job ON job.id = held.job_id
ORDER BY held.job_id
