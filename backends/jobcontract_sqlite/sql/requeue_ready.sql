-- A ready job with a run_at ahead becomes due now.
UPDATE jobcontract_jobs INDEXED BY jobcontract_jobs_id
SET run_at = (SELECT now FROM jobcontract_clock)
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state = 'ready'
    AND run_at > (SELECT now FROM jobcontract_clock)
