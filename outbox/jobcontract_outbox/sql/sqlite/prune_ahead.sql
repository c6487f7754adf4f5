-- Where prune.sql stops: the last id that it looks at, and whether that one is past the retention too. No row: there is
-- none. Parameters: the id to begin behind; limit; retention in seconds.
SELECT job_id, created_at < (SELECT now FROM jobcontract_clock) - CAST(?3 * 1000000 AS INTEGER)
FROM (
    SELECT job_id, created_at FROM {outbox_jobs} WHERE job_id > ?1 ORDER BY job_id LIMIT ?2
)
ORDER BY job_id DESC
LIMIT 1
