-- Insert the jobs that the store does not know yet and whose key, if they have one, they hold themselves.
INSERT INTO jobcontract_jobs (
    id, queue, kind, priority, run_at, max_attempts, created_at, idempotency_key, headers, input_ref
)
SELECT
    item.id, item.queue, kind, priority, coalesce(run_at, clock.now), max_attempts, clock.now, item.idempotency_key,
    headers, input_ref
FROM jobcontract_clock AS clock
CROSS JOIN (
    SELECT
        json_extract(value, '$.id') AS id,
        json_extract(value, '$.queue') AS queue,
        json_extract(value, '$.kind') AS kind,
        json_extract(value, '$.priority') AS priority,
        json_extract(value, '$.run_at') AS run_at,
        json_extract(value, '$.max_attempts') AS max_attempts,
        json_extract(value, '$.idempotency_key') AS idempotency_key,
        json_extract(value, '$.headers') AS headers,
        json_extract(value, '$.input_ref') AS input_ref
    FROM json_each(?)
) AS item
WHERE NOT EXISTS (SELECT 1 FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = item.id)
    AND NOT EXISTS (SELECT 1 FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = item.id)
    AND NOT EXISTS (SELECT 1 FROM jobcontract_moving INDEXED BY jobcontract_moving_id WHERE id = item.id)
    AND (SELECT intake FROM jobcontract_gate)
    AND (
        item.idempotency_key IS NULL
        OR item.id = (
            SELECT job_id
            FROM jobcontract_keys
            WHERE idempotency_key = item.idempotency_key
                AND queue = item.queue
        )
    )
ON CONFLICT DO NOTHING
RETURNING id
