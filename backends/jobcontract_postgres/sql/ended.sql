-- Not a statement of its own: which of the jobs that the statement has just created had ended before. An expression over a row with
-- columns ids and since; none of the jobs can have ended before `since`, so that older partitions need not be read.
--
-- A registration may be repeated while its job is being settled: the id is then free in live_jobs the moment before its end shows up, so
-- that the statement's own snapshot tells the truth only if nothing was written since it was taken. Where something was, a function that
-- sees what is there now looks again. A job that is on its way to another store, or went there, must not come back either.
CASE
    WHEN {unchanged}
     AND NOT EXISTS (SELECT FROM {schema}.done_jobs AS job WHERE job.id = ANY (ids) AND job.finished_at >= since)
     AND NOT EXISTS (SELECT FROM {schema}.dead_jobs AS job WHERE job.id = ANY (ids))
     AND NOT EXISTS (SELECT FROM {schema}.moving_jobs AS job WHERE job.id = ANY (ids))
    THEN '{}'
    ELSE {schema}.withdraw_ended(ids, since)
END
