-- Each queue in numbers: (queue, ready, scheduled, running, expired, dead, cancelled, how long the first has been due, paused).
-- Reads the live and the dead jobs; the history is not counted.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS time
), live AS (
    SELECT queue,
           count(*) FILTER (WHERE state = 'ready' AND run_at <= time) AS ready,
           count(*) FILTER (WHERE state = 'ready' AND run_at > time) AS scheduled,
           count(*) FILTER (WHERE state = 'running') AS running,
           count(*) FILTER (WHERE state = 'running' AND lease_until <= time) AS expired,
           min(run_at) FILTER (WHERE state = 'ready' AND run_at <= time) AS first_due
    FROM {schema}.live_jobs, clock
    GROUP BY queue
), ended AS (
    SELECT queue,
           count(*) FILTER (WHERE state = 'dead') AS dead,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM {schema}.dead_jobs
    GROUP BY queue
), paused AS (
    SELECT name AS queue FROM {schema}.queues WHERE paused
), known AS (
    SELECT queue FROM live UNION SELECT queue FROM ended UNION SELECT queue FROM paused
)
SELECT known.queue,
       coalesce(ready, 0), coalesce(scheduled, 0), coalesce(running, 0), coalesce(expired, 0), coalesce(dead, 0),
       coalesce(cancelled, 0),
       extract(epoch FROM (SELECT time FROM clock) - first_due)::float8,
       paused.queue IS NOT NULL
FROM known
LEFT JOIN live ON live.queue = known.queue
LEFT JOIN ended ON ended.queue = known.queue
LEFT JOIN paused ON paused.queue = known.queue
ORDER BY known.queue COLLATE "C"
