-- For each of these jobs, which were not inserted: its own state when it is known itself; who holds its key, and that
-- job's state; and whether the key was taken with another kind or input.
SELECT
    item.id,
    coalesce(
        (SELECT state FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = item.id),
        (SELECT state FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = item.id),
        (SELECT state FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = item.id),
        (SELECT state FROM jobcontract_moving INDEXED BY jobcontract_moving_id WHERE id = item.id)
    ),
    holder.job_id,
    coalesce(
        (SELECT state FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = holder.job_id),
        (SELECT state FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = holder.job_id),
        (SELECT state FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = holder.job_id),
        (SELECT state FROM jobcontract_moving INDEXED BY jobcontract_moving_id WHERE id = holder.job_id)
    ),
    coalesce(holder.fingerprint <> item.fingerprint, false)
FROM (
    SELECT
        json_extract(value, '$.id') AS id,
        json_extract(value, '$.queue') AS queue,
        json_extract(value, '$.idempotency_key') AS idempotency_key,
        json_extract(value, '$.fingerprint') AS fingerprint
    FROM json_each(?)
) AS item
LEFT JOIN jobcontract_keys AS holder
    ON holder.idempotency_key = item.idempotency_key
    AND holder.queue = item.queue
