-- Those of the jobs that are dead or cancelled.
INSERT INTO jobcontract_dead (
    id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at, idempotency_key,
    last_error, headers, input_ref, state, finished_at
)
SELECT
    json_extract(value, '$.id'), json_extract(value, '$.queue'), json_extract(value, '$.kind'),
    json_extract(value, '$.priority'), json_extract(value, '$.run_at'), json_extract(value, '$.attempt'),
    json_extract(value, '$.refunded'), json_extract(value, '$.max_attempts'),
    json_extract(value, '$.created_at'), json_extract(value, '$.idempotency_key'),
    json_extract(value, '$.last_error'), json_extract(value, '$.headers'), json_extract(value, '$.input_ref'),
    json_extract(value, '$.state'), json_extract(value, '$.finished_at')
FROM json_each(:jobs)
WHERE json_extract(value, '$.state') IN ('dead', 'cancelled')
