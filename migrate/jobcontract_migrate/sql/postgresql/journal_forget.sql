-- At the end of a migration: forget jobs of which no second copy can come any more. Those whose home is a broker may have one.
-- One row for each. Parameters: how many copies may be left; limit.
DELETE FROM {move_journal}
WHERE job_id = ANY (ARRAY(SELECT job_id FROM {move_journal} WHERE sent <= %s LIMIT %s))
RETURNING job_id
