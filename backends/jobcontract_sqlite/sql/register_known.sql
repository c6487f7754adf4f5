-- For each of these jobs, which were not inserted: its own state when it is known itself, else the holder of its key with that
-- job's state; and whether the key was taken with another kind or input.
SELECT
    json_extract(item.value, '$.id'),
    coalesce(
        (SELECT state FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = json_extract(item.value, '$.id')),
        (SELECT state FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = json_extract(item.value, '$.id')),
        (SELECT state FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = json_extract(item.value, '$.id'))
    ),
    holder.job_id,
    coalesce(
        (SELECT state FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = holder.job_id),
        (SELECT state FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = holder.job_id),
        (SELECT state FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = holder.job_id)
    ),
    coalesce(holder.fingerprint <> json_extract(item.value, '$.fingerprint'), false)
FROM json_each(?) AS item
LEFT JOIN jobcontract_keys AS holder
    ON holder.idempotency_key = json_extract(item.value, '$.idempotency_key')
    AND holder.queue = json_extract(item.value, '$.queue')
