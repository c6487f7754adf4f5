-- Each queue in numbers. Each part reads one index from end to end.
SELECT
    queue,
    sum(ready), sum(scheduled), sum(running), sum(expired), sum(dead), sum(done), sum(cancelled),
    (SELECT now FROM jobcontract_clock) - min(first_due), max(paused)
FROM (
    SELECT
        queue,
        count(*) FILTER (WHERE run_at <= (SELECT now FROM jobcontract_clock)) AS ready,
        count(*) FILTER (WHERE run_at > (SELECT now FROM jobcontract_clock)) AS scheduled,
        0 AS running,
        0 AS expired,
        0 AS dead,
        0 AS done,
        0 AS cancelled,
        min(run_at) FILTER (WHERE run_at <= (SELECT now FROM jobcontract_clock)) AS first_due,
        0 AS paused
    FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready
    WHERE state = 'ready'
    GROUP BY queue
    UNION ALL
    SELECT
        queue, 0, 0, count(*), count(*) FILTER (WHERE lease_until <= (SELECT now FROM jobcontract_clock)),
        0, 0, 0, NULL, 0
    FROM jobcontract_jobs INDEXED BY jobcontract_jobs_running
    WHERE state = 'running'
    GROUP BY queue
    UNION ALL
    SELECT
        queue, 0, 0, 0, 0, count(*) FILTER (WHERE state = 'dead'), 0,
        count(*) FILTER (WHERE state = 'cancelled'), NULL, 0
    FROM jobcontract_dead INDEXED BY jobcontract_dead_queue
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, 0, 0, count(*), 0, NULL, 0
    FROM jobcontract_done INDEXED BY jobcontract_done_queue
    GROUP BY queue
    UNION ALL
    SELECT name, 0, 0, 0, 0, 0, 0, 0, NULL, 1
    FROM jobcontract_queues
    WHERE paused
)
GROUP BY queue
ORDER BY queue
