-- At the end of a migration: forget jobs of which no second copy can come any more. Those whose home is a broker may have one.
-- One row for each. Parameters: how many copies may be left; limit.
DELETE FROM {move_journal}
WHERE job_id IN (SELECT job_id FROM {move_journal} WHERE sent <= ?1 LIMIT ?2)
RETURNING job_id
