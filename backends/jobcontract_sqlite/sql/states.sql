-- Where each of these jobs is in its life; NULL for a job that the store does not know.
-- Not from jobcontract_all_jobs: a join with it would read all tables from end to end.
SELECT
    wanted.value,
    coalesce(
        (SELECT state FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = wanted.value),
        (SELECT state FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = wanted.value),
        (SELECT state FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = wanted.value),
        (SELECT state FROM jobcontract_moving INDEXED BY jobcontract_moving_id WHERE id = wanted.value)
    )
FROM json_each(:ids) AS wanted
