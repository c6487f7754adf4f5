-- Take the idempotency keys of those jobs that the store does not know yet. A taken key stays with its holder;
-- of two jobs with one key, the first has it.
INSERT INTO jobcontract_keys (idempotency_key, queue, job_id, fingerprint)
SELECT
    json_extract(item.value, '$.idempotency_key'),
    json_extract(item.value, '$.queue'),
    json_extract(item.value, '$.id'),
    json_extract(item.value, '$.fingerprint')
FROM json_each(?) AS item
WHERE json_extract(item.value, '$.idempotency_key') IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = json_extract(item.value, '$.id'))
    AND NOT EXISTS (SELECT 1 FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = json_extract(item.value, '$.id'))
    AND NOT EXISTS (SELECT 1 FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = json_extract(item.value, '$.id'))
ORDER BY item.key
ON CONFLICT DO NOTHING
