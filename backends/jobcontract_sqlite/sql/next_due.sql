-- In how many microseconds the first ready job of these queues is due: 0 or less is now, no row or NULL is never.
SELECT
    min((
        SELECT run_at
        FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready
        WHERE state = 'ready'
            AND queue = queue.value
            AND priority = priority.value
        ORDER BY run_at
        LIMIT 1
    )) - (SELECT now FROM jobcontract_clock)
FROM json_each(:queues) AS queue
CROSS JOIN json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]') AS priority
WHERE NOT EXISTS (SELECT 1 FROM jobcontract_queues WHERE name = queue.value AND paused)
