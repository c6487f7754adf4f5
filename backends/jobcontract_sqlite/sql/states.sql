-- Where each of these jobs is in its life; a job the store does not know gives no row.
SELECT wanted.value, job.state
FROM json_each(:ids) AS wanted
CROSS JOIN (
    SELECT id, state FROM jobcontract_jobs
    UNION ALL
    SELECT id, 'done' FROM jobcontract_done
    UNION ALL
    SELECT id, state FROM jobcontract_dead
) AS job ON job.id = wanted.value
