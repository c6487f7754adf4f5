-- Enters the jobs whose id and key are new to the outbox: one row (id) for each. Parameters: target; the jobs as JSON.
INSERT INTO {outbox_jobs} (job_id, created_at, target, queue, idempotency_key, fingerprint)
SELECT json_extract(value, '$.id'), (SELECT now FROM jobcontract_clock), ?1, json_extract(value, '$.queue'), json_extract(value, '$.idempotency_key'),
       json_extract(value, '$.fingerprint')
FROM json_each(?2)
WHERE true  -- else SQLite takes the ON of ON CONFLICT for that of a join
ORDER BY key
ON CONFLICT DO NOTHING
RETURNING job_id
