-- Takes due jobs: ready to running, with a new token and one attempt more.
-- Parameters: arrays of queue, priority, lowest run_at, lowest id; limit, limit, lease.
--
-- A plain "run_at <= now()" would walk over every future job of a better priority. Probed per queue and priority, each
-- range of the index holds due jobs only. Its lower bound is the low-water hint (see low_water.py), and then the first
-- job that is found there. Among queues, the one whose first job is due the longest goes first.
WITH range AS MATERIALIZED (
    SELECT probe.queue, probe.priority, head.run_at, head.id
    FROM unnest(%s::text[], %s::smallint[], %s::timestamptz[], %s::uuid[])
        AS probe (queue, priority, low_run_at, low_id)
    CROSS JOIN LATERAL (
        SELECT run_at, id
        FROM {schema}.live_jobs AS job
        WHERE job.state = 'ready' AND job.queue = probe.queue AND job.priority = probe.priority
          AND (job.run_at, job.id) >= (probe.low_run_at, probe.low_id)
          AND job.run_at <= statement_timestamp()
        ORDER BY run_at, id
        LIMIT 1
    ) AS head
    WHERE NOT EXISTS (SELECT FROM {schema}.queues WHERE queues.name = probe.queue AND queues.paused)
    ORDER BY probe.priority DESC, head.run_at
), picked AS MATERIALIZED (
    SELECT job.id
    FROM range
    CROSS JOIN LATERAL (
        SELECT id
        FROM {schema}.live_jobs AS job
        WHERE job.state = 'ready' AND job.queue = range.queue AND job.priority = range.priority
          AND (job.run_at, job.id) >= (range.run_at, range.id)
          AND job.run_at <= statement_timestamp()
        ORDER BY run_at, id
        LIMIT %s
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT %s
)
UPDATE {schema}.live_jobs AS job
SET state = 'running', attempt = attempt + 1, token = gen_random_uuid(), lease_until = clock_timestamp() + %s
WHERE job.id = ANY (ARRAY(SELECT id FROM picked))
RETURNING job.id::text, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref::text, headers::text,
          token::text, attempt, lease_until, refunded
