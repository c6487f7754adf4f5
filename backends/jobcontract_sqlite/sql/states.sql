-- Where each of these jobs is in its life; a job that the store does not know gives no row.
SELECT job.id, job.state
FROM json_each(:ids) AS wanted
CROSS JOIN jobcontract_all_jobs AS job ON job.id = wanted.value
