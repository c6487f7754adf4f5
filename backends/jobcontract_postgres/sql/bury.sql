-- Moving to moved; one row: how many.
-- Parameters: array of id; epoch.
WITH buried AS (
    UPDATE {schema}.moving_jobs AS job
    SET state = 'moved'
    WHERE job.id = ANY (%s::uuid[])
      AND job.state = 'moving' AND job.was <> 'moving'
      AND (SELECT last_value / 4 FROM {schema}.gate) = %s
    RETURNING job.id
)
SELECT count(*) FROM buried
