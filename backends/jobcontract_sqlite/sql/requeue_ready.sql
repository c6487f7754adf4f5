-- A ready job with a run_at ahead becomes due now.
UPDATE jobcontract_jobs
SET run_at = clock.now
FROM jobcontract_clock AS clock
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state = 'ready'
    AND run_at > clock.now
