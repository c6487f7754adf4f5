-- The job of these queues that is due first: seconds until then (not positive: it is due), and which it is.
-- Parameters: arrays of queue, priority, lowest run_at, lowest id (see claim.sql).
SELECT extract(epoch FROM head.run_at - clock_timestamp())::float8, head.id::text, head.run_at
FROM unnest(%s::text[], %s::smallint[], %s::timestamptz[], %s::uuid[]) AS probe (queue, priority, low_run_at, low_id)
CROSS JOIN LATERAL (
    SELECT id, run_at
    FROM {schema}.live_jobs AS job
    WHERE job.state = 'ready' AND job.queue = probe.queue AND job.priority = probe.priority
      AND (job.run_at, job.id) >= (probe.low_run_at, probe.low_id)
    ORDER BY run_at, id
    LIMIT 1
) AS head
WHERE NOT EXISTS (SELECT FROM {schema}.queues WHERE queues.name = probe.queue AND queues.paused)
ORDER BY head.run_at
LIMIT 1
