-- What the ledger knows of jobs that register_ledger.sql did not take: position in the batch, id of the job that stands
-- in its place, whether that one is held by key and differs, and its state (null: the outbox can't tell any more).
-- Parameters: target; the jobs as JSON.
SELECT wanted.key + 1, found.job_id,
       found.job_id <> json_extract(wanted.value, '$.id') AND found.fingerprint IS NOT json_extract(wanted.value, '$.fingerprint'),
       CASE
           WHEN found.cancelled_at IS NOT NULL THEN 'cancelled'
           WHEN EXISTS (SELECT 1 FROM {outbox} AS waiting WHERE waiting.job_id = found.job_id) THEN 'ready'
       END
FROM json_each(?2) AS wanted
JOIN {outbox_jobs} AS found ON found.job_id = coalesce(
    (SELECT job_id FROM {outbox_jobs} WHERE job_id = json_extract(wanted.value, '$.id')),
    (
        SELECT job_id FROM {outbox_jobs}
        WHERE target = ?1 AND queue = json_extract(wanted.value, '$.queue')
            AND idempotency_key = json_extract(wanted.value, '$.idempotency_key')
    )
)
