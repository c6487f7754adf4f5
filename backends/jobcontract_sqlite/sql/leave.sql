-- Second half of a move: takes out of the live table what the statement before it, in the same transaction, has
-- copied elsewhere.
DELETE FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id
WHERE id IN (SELECT value FROM json_each(:ids))
