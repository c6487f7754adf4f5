-- Each queue in numbers. Every part is an aggregate over one covering index.
SELECT
    queue,
    sum(ready), sum(scheduled), sum(running), sum(expired), sum(dead), sum(done), sum(cancelled),
    max(oldest_ready), max(paused)
FROM (
    SELECT
        queue,
        count(*) FILTER (WHERE run_at <= now) AS ready,
        count(*) FILTER (WHERE run_at > now) AS scheduled,
        0 AS running,
        0 AS expired,
        0 AS dead,
        0 AS done,
        0 AS cancelled,
        max(now - run_at) FILTER (WHERE run_at <= now) AS oldest_ready,
        0 AS paused
    FROM jobcontract_clock
    CROSS JOIN jobcontract_jobs
    WHERE state = 'ready'
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, count(*), count(*) FILTER (WHERE lease_expires_at <= now), 0, 0, 0, NULL, 0
    FROM jobcontract_clock
    CROSS JOIN jobcontract_jobs
    WHERE state = 'running'
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, 0, count(*) FILTER (WHERE state = 'dead'), 0, count(*) FILTER (WHERE state = 'cancelled'), NULL, 0
    FROM jobcontract_dead
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, 0, 0, count(*), 0, NULL, 0
    FROM jobcontract_done
    GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0, 0, 0, 0, 0, 0, NULL, 1
    FROM jobcontract_queues
    WHERE paused
)
GROUP BY queue
ORDER BY queue
