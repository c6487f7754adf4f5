-- Stores jobs that the ledger has just taken. Parameters: target; the jobs as JSON.
INSERT INTO {outbox} (target, job_id, queue, ordering_key, due_at, available_at, created_at, envelope)
SELECT ?1, json_extract(value, '$.id'), json_extract(value, '$.queue'), json_extract(value, '$.ordering_key'),
       max(coalesce(json_extract(value, '$.run_at'), 0), (SELECT now FROM jobcontract_clock)),
       max(coalesce(json_extract(value, '$.run_at'), 0), (SELECT now FROM jobcontract_clock)),
       (SELECT now FROM jobcontract_clock), json_extract(value, '$.envelope')
FROM json_each(?2)
ORDER BY key
