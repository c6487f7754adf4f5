-- The job of these queues that is due first: seconds until then (not positive: it is due), and which it is.
-- Parameters: arrays of queue, priority (every pair of them once).
SELECT extract(epoch FROM head.run_at - clock_timestamp())::float8, head.id::text, head.run_at
FROM unnest(%s::text[], %s::smallint[]) AS probe (queue, priority)
CROSS JOIN LATERAL (
    SELECT id, run_at
    FROM {schema}.live_jobs AS job
    WHERE job.state = 'ready' AND job.queue = probe.queue AND job.priority = probe.priority
    ORDER BY run_at, id
    LIMIT 1
) AS head
WHERE NOT EXISTS (SELECT FROM {schema}.queues WHERE queues.name = probe.queue AND queues.paused)
ORDER BY head.run_at
LIMIT 1
