-- Takes due jobs: ready to running, with a new token and one attempt more.
-- Parameters: arrays of queue, priority, lowest run_at, lowest id; limit, limit, lease; whether it is a survey.
--
-- A plain "run_at <= now()" would walk over every future job of a better priority. Probed per queue and priority, each
-- range of the index holds due jobs only. Its lower bound is the low-water mark (see low_water.py), and then the first
-- job that is found there. Among queues, the one whose first job is due the longest goes first.
--
-- While claims are shut (see the sequence `gate` in 001_jobs.sql) there is one row without a queue.
--
-- A survey also tells, in rows without a kind, where the first due job of each range was, or that there was none until
-- a second ago (what is due since may be on its way to its commit); and in the place of the attempt, after how many
-- microseconds it knew.
WITH range AS MATERIALIZED (
    SELECT probe.queue, probe.priority, head.run_at, head.id, clock_timestamp() AS seen_at
    FROM unnest(%s::text[], %s::smallint[], %s::timestamptz[], %s::uuid[])
        AS probe (queue, priority, low_run_at, low_id)
    LEFT JOIN LATERAL (
        SELECT run_at, id
        FROM {schema}.live_jobs AS job
        WHERE job.state = 'ready' AND job.queue = probe.queue AND job.priority = probe.priority
          AND (job.run_at, job.id) >= (probe.low_run_at, probe.low_id)
          AND job.run_at <= statement_timestamp()
        ORDER BY run_at, id
        LIMIT 1
    ) AS head ON true
    WHERE NOT EXISTS (SELECT FROM {schema}.queues WHERE queues.name = probe.queue AND queues.paused)
      AND (SELECT last_value & 1 = 1 FROM {schema}.gate)
), picked AS MATERIALIZED (
    SELECT job.id
    FROM (SELECT * FROM range WHERE id IS NOT NULL ORDER BY priority DESC, run_at OFFSET 0) AS range
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
), claimed AS (
    UPDATE {schema}.live_jobs AS job
    SET state = 'running', attempt = attempt + 1, token = gen_random_uuid(), lease_until = (SELECT clock_timestamp() + %s::interval)
    WHERE job.id = ANY (ARRAY(SELECT id FROM picked))
    RETURNING job.*
)
SELECT id::text, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref::text, headers::text,
       token::text, attempt, lease_until, refunded
FROM claimed
UNION ALL
SELECT id::text, NULL, queue, priority, coalesce(run_at, statement_timestamp() - interval '1 s'), NULL, NULL, NULL, NULL, NULL,
       (least(extract(epoch FROM seen_at - statement_timestamp()), 1000) * 1000000)::integer, NULL, NULL
FROM range
WHERE %s
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM {schema}.gate
WHERE last_value & 1 = 0
