-- Take the idempotency keys of those jobs that the store does not know yet. A taken key stays with its holder;
-- of two jobs with one key, the first has it.
INSERT INTO jobcontract_keys (idempotency_key, queue, job_id, fingerprint)
SELECT idempotency_key, queue, item.id, fingerprint
FROM (
    SELECT
        key AS position,
        json_extract(value, '$.id') AS id,
        json_extract(value, '$.queue') AS queue,
        json_extract(value, '$.idempotency_key') AS idempotency_key,
        json_extract(value, '$.fingerprint') AS fingerprint
    FROM json_each(?)
) AS item
WHERE idempotency_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = item.id)
    AND NOT EXISTS (SELECT 1 FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = item.id)
    AND NOT EXISTS (SELECT 1 FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = item.id)
    AND NOT EXISTS (SELECT 1 FROM jobcontract_moving INDEXED BY jobcontract_moving_id WHERE id = item.id)
    AND (SELECT intake FROM jobcontract_gate)
ORDER BY position
ON CONFLICT DO NOTHING
