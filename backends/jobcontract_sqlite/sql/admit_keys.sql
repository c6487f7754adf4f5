-- Take the keys of those jobs that hold one where they come from. A taken key stays with its holder.
INSERT INTO jobcontract_keys (idempotency_key, queue, job_id, fingerprint)
SELECT
    json_extract(value, '$.idempotency_key'), json_extract(value, '$.queue'), json_extract(value, '$.id'),
    json_extract(value, '$.fingerprint')
FROM json_each(:jobs)
WHERE json_extract(value, '$.fingerprint') IS NOT NULL
ON CONFLICT DO NOTHING
