-- Forgets published and cancelled jobs that are past the retention, among the next ones by id: how many it forgot, the
-- last id that it looked at (null: there were none), and whether that one is past the retention too.
-- Ids are in the order of time, so the old ones come first. Jobs that still wait are passed over, and never hide those
-- behind them. Parameters: the id to begin behind; limit; retention in seconds, twice.
WITH looked_at AS MATERIALIZED (
    SELECT job_id, created_at FROM {outbox_jobs} WHERE job_id > %s::uuid ORDER BY job_id LIMIT %s
), forgotten AS (
    DELETE FROM {outbox_jobs}
    WHERE job_id = ANY (ARRAY(
        SELECT job_id FROM looked_at
        WHERE created_at < statement_timestamp() - make_interval(secs => %s)
          AND NOT EXISTS (SELECT FROM {outbox} AS waiting WHERE waiting.job_id = looked_at.job_id)
    ))
    RETURNING job_id
)
SELECT (SELECT count(*) FROM forgotten), last.job_id::text,
       last.created_at < statement_timestamp() - make_interval(secs => %s)
FROM (SELECT * FROM looked_at ORDER BY job_id DESC LIMIT 1) AS last
