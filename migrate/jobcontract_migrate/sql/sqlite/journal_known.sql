-- Those of the jobs that have their home in a store. Parameters: home; the ids as JSON.
SELECT job_id FROM {move_journal} WHERE home = ?1 AND job_id IN (SELECT value FROM json_each(?2))
