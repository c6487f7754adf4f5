-- Insert the jobs that the store does not know yet and whose key, if they have one, they hold themselves.
INSERT INTO jobcontract_jobs (
    id, queue, kind, priority, run_at, max_attempts, created_at, idempotency_key, headers, input_ref
)
SELECT
    json_extract(item.value, '$.id'),
    json_extract(item.value, '$.queue'),
    json_extract(item.value, '$.kind'),
    json_extract(item.value, '$.priority'),
    coalesce(json_extract(item.value, '$.run_at'), clock.now),
    json_extract(item.value, '$.max_attempts'),
    clock.now,
    json_extract(item.value, '$.idempotency_key'),
    json_extract(item.value, '$.headers'),
    json_extract(item.value, '$.input_ref')
FROM jobcontract_clock AS clock
CROSS JOIN json_each(?) AS item
WHERE NOT EXISTS (SELECT 1 FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = json_extract(item.value, '$.id'))
    AND NOT EXISTS (SELECT 1 FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = json_extract(item.value, '$.id'))
    AND (
        json_extract(item.value, '$.idempotency_key') IS NULL
        OR json_extract(item.value, '$.id') = (
            SELECT job_id
            FROM jobcontract_keys
            WHERE idempotency_key = json_extract(item.value, '$.idempotency_key')
                AND queue = json_extract(item.value, '$.queue')
        )
    )
ON CONFLICT DO NOTHING
RETURNING id
