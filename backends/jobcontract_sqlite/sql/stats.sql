-- Each queue in numbers. Jumps from queue to queue along the indexes of ready and of done jobs, and counts ranges of them,
-- :most entries of each at the most. What runs is bounded by the workers, and dead and cancelled jobs are read to the end.
WITH RECURSIVE
ready_queue (name) AS (
    SELECT (SELECT min(queue) FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready WHERE state = 'ready')
    UNION ALL
    SELECT (
        SELECT min(queue)
        FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready
        WHERE state = 'ready' AND queue > ready_queue.name
    )
    FROM ready_queue
    WHERE name IS NOT NULL
),
done_queue (name) AS (
    SELECT (SELECT min(queue) FROM jobcontract_done INDEXED BY jobcontract_done_queue)
    UNION ALL
    SELECT (SELECT min(queue) FROM jobcontract_done INDEXED BY jobcontract_done_queue WHERE queue > done_queue.name)
    FROM done_queue
    WHERE name IS NOT NULL
)
SELECT
    queue,
    sum(ready), sum(scheduled), sum(running), sum(expired), sum(dead), sum(done), sum(cancelled),
    (SELECT now FROM jobcontract_clock) - min(first_due), max(paused), sum(done_lately)
FROM (
    SELECT
        ready_queue.name AS queue,
        (
            SELECT count(*)
            FROM (
                SELECT 1
                FROM json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]') AS priority
                CROSS JOIN jobcontract_jobs AS job INDEXED BY jobcontract_jobs_ready
                WHERE job.state = 'ready'
                    AND job.queue = ready_queue.name
                    AND job.priority = priority.value
                    AND job.run_at <= (SELECT now FROM jobcontract_clock)
                LIMIT :most
            )
        ) AS ready,
        (
            SELECT count(*)
            FROM (
                SELECT 1
                FROM json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]') AS priority
                CROSS JOIN jobcontract_jobs AS job INDEXED BY jobcontract_jobs_ready
                WHERE job.state = 'ready'
                    AND job.queue = ready_queue.name
                    AND job.priority = priority.value
                    AND job.run_at > (SELECT now FROM jobcontract_clock)
                LIMIT :most
            )
        ) AS scheduled,
        0 AS running,
        0 AS expired,
        0 AS dead,
        0 AS done,
        0 AS cancelled,
        (
            SELECT min((
                SELECT min(run_at)
                FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready
                WHERE state = 'ready'
                    AND queue = ready_queue.name
                    AND priority = priority.value
                    AND run_at <= (SELECT now FROM jobcontract_clock)
            ))
            FROM json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]') AS priority
        ) AS first_due,
        0 AS paused,
        0 AS done_lately
    FROM ready_queue
    WHERE ready_queue.name IS NOT NULL
    UNION ALL
    SELECT
        queue, 0, 0, count(*), count(*) FILTER (WHERE lease_until <= (SELECT now FROM jobcontract_clock)),
        0, 0, 0, NULL, 0, 0
    FROM jobcontract_jobs INDEXED BY jobcontract_jobs_running
    WHERE state = 'running'
    GROUP BY queue
    UNION ALL
    SELECT
        queue, 0, 0, 0, 0, count(*) FILTER (WHERE state = 'dead'), 0,
        count(*) FILTER (WHERE state = 'cancelled'), NULL, 0, 0
    FROM jobcontract_dead INDEXED BY jobcontract_dead_queue
    GROUP BY queue
    UNION ALL
    SELECT
        done_queue.name, 0, 0, 0, 0, 0,
        (
            SELECT count(*)
            FROM (
                SELECT 1
                FROM jobcontract_done INDEXED BY jobcontract_done_queue
                WHERE queue = done_queue.name
                LIMIT :most
            )
        ),
        0, NULL, 0, 0
    FROM done_queue
    WHERE done_queue.name IS NOT NULL
    UNION ALL
    SELECT queue, 0, 0, 0, 0, 0, 0, 0, NULL, 0, count(*)
    FROM (
        SELECT queue
        FROM jobcontract_done INDEXED BY jobcontract_done_finished
        WHERE finished_at > (SELECT now FROM jobcontract_clock) - :lately
        LIMIT :most
    )
    GROUP BY queue
    UNION ALL
    SELECT name, 0, 0, 0, 0, 0, 0, 0, NULL, 1, 0
    FROM jobcontract_queues
    WHERE paused
)
GROUP BY queue
ORDER BY queue
