-- Each queue in numbers: (queue, ready, scheduled, running, expired, dead, cancelled, how long the first has been due, paused).
-- Bounded work, whatever is in the tables: a jump along the index from queue to queue, what waits counted up to 100,001 over all
-- priorities, and all of what runs. The history is not read: see done_rate.sql.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS time
), waiting_queue (queue) AS (
    (SELECT queue FROM {schema}.live_jobs WHERE state = 'ready' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT queue FROM {schema}.live_jobs AS job
        WHERE job.state = 'ready' AND job.queue > waiting_queue.queue ORDER BY queue LIMIT 1
    )
    FROM waiting_queue
    WHERE queue IS NOT NULL
), waiting AS (
    SELECT waiting_queue.queue, due.ready, later.scheduled, first.due AS first_due
    FROM clock
    CROSS JOIN waiting_queue
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready
        FROM (
            SELECT
            FROM generate_series(0, 9) AS level (priority)
            CROSS JOIN LATERAL (
                SELECT FROM {schema}.live_jobs AS job
                WHERE job.state = 'ready' AND job.queue = waiting_queue.queue AND job.priority = level.priority
                  AND job.run_at <= clock.time
                OFFSET 0
            ) AS job
            LIMIT 100001
        ) AS job
    ) AS due
    CROSS JOIN LATERAL (
        SELECT count(*) AS scheduled
        FROM (
            SELECT
            FROM generate_series(0, 9) AS level (priority)
            CROSS JOIN LATERAL (
                SELECT FROM {schema}.live_jobs AS job
                WHERE job.state = 'ready' AND job.queue = waiting_queue.queue AND job.priority = level.priority
                  AND job.run_at > clock.time
                OFFSET 0
            ) AS job
            LIMIT 100001
        ) AS job
    ) AS later
    CROSS JOIN LATERAL (
        SELECT min(job.run_at) AS due
        FROM generate_series(0, 9) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT run_at FROM {schema}.live_jobs AS job
            WHERE job.state = 'ready' AND job.queue = waiting_queue.queue AND job.priority = level.priority
              AND job.run_at <= clock.time
            ORDER BY run_at
            LIMIT 1
        ) AS job
    ) AS first
    WHERE waiting_queue.queue IS NOT NULL
), running AS (
    SELECT queue, count(*) AS running, count(*) FILTER (WHERE lease_until <= time) AS expired
    FROM {schema}.live_jobs, clock
    WHERE state = 'running'
    GROUP BY queue
), ended_queue (queue) AS (
    (SELECT queue FROM {schema}.dead_jobs ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM {schema}.dead_jobs AS job WHERE job.queue > ended_queue.queue ORDER BY queue LIMIT 1)
    FROM ended_queue
    WHERE queue IS NOT NULL
), ended AS (
    SELECT queue,
           (SELECT count(*) FROM (
               SELECT FROM {schema}.dead_jobs AS job WHERE job.queue = ended_queue.queue AND state = 'dead' LIMIT 100001
           ) AS job) AS dead,
           (SELECT count(*) FROM (
               SELECT FROM {schema}.dead_jobs AS job WHERE job.queue = ended_queue.queue AND state = 'cancelled' LIMIT 100001
           ) AS job) AS cancelled
    FROM ended_queue
    WHERE queue IS NOT NULL
), paused AS (
    SELECT name AS queue FROM {schema}.queues WHERE paused
), known AS (
    SELECT queue FROM waiting UNION SELECT queue FROM running UNION SELECT queue FROM ended UNION SELECT queue FROM paused
)
SELECT known.queue,
       coalesce(ready, 0), coalesce(scheduled, 0),
       coalesce(running, 0), coalesce(expired, 0), coalesce(dead, 0), coalesce(cancelled, 0),
       extract(epoch FROM (SELECT time FROM clock) - first_due)::float8,
       paused.queue IS NOT NULL
FROM known
LEFT JOIN waiting ON waiting.queue = known.queue
LEFT JOIN running ON running.queue = known.queue
LEFT JOIN ended ON ended.queue = known.queue
LEFT JOIN paused ON paused.queue = known.queue
ORDER BY known.queue COLLATE "C"
