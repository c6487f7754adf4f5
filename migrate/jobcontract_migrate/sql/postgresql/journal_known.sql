-- Those of the jobs that have their home in a store. Parameters: home; array of ids.
SELECT job_id FROM {move_journal} WHERE home = %s AND job_id = ANY (%s::text[])
