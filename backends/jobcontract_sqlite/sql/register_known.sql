-- For each of these jobs, which were not inserted: the job that stands in its place (itself, or the holder of its key), where that
-- job is in its life, and whether it was registered with another kind or input.
SELECT
    json_extract(item.value, '$.id'),
    coalesce(own.id, holder.job_id),
    coalesce(own.state, (SELECT state FROM jobcontract_all_jobs WHERE id = holder.job_id)),
    coalesce(holder.fingerprint <> json_extract(item.value, '$.fingerprint'), 0)
FROM json_each(?) AS item
LEFT JOIN jobcontract_all_jobs AS own ON own.id = json_extract(item.value, '$.id')
LEFT JOIN jobcontract_keys AS holder
    ON holder.idempotency_key = json_extract(item.value, '$.idempotency_key')
    AND holder.queue = json_extract(item.value, '$.queue')
