-- How many jobs ended per second in the last ten: (queue, rate). Parameter: where to begin, as (page, 0).
--
-- The history is written from its beginning to its end, so that its last pages hold what ended last. An index on the end of a job
-- would make each completion dearer by an eighth. Read by way of the whole history, for which alone a role has privileges; what is of
-- other days is left out by the time. Where the pages hold less than ten seconds, it is the rate of what they hold.
WITH latest AS MATERIALIZED (
    SELECT queue, finished_at
    FROM {schema}.done_jobs
    WHERE ctid >= %s::tid AND finished_at > statement_timestamp() - interval '10 s'
), span AS (
    SELECT CASE WHEN count(*) > 50000 THEN extract(epoch FROM max(finished_at) - min(finished_at))::float8 ELSE 10 END AS seconds
    FROM latest
)
SELECT queue, count(*) / greatest((SELECT seconds FROM span), 0.001) FROM latest GROUP BY queue
