-- The jobs :ids, by id: done ones as such, all others as placeholders. No tombstones.
SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    'moving', attempt, refunded, created_at, NULL, last_error
FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id
WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    'moving', attempt, refunded, created_at, finished_at, last_error
FROM jobcontract_dead INDEXED BY jobcontract_dead_id
WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    'done', attempt, refunded, created_at, finished_at, last_error
FROM jobcontract_done INDEXED BY jobcontract_done_id
WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT
    id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers,
    'moving', attempt, refunded, created_at, finished_at, last_error
FROM jobcontract_moving INDEXED BY jobcontract_moving_id
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state = 'moving'
ORDER BY id
