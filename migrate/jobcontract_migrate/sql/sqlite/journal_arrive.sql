-- Jobs that were on their way are in their home. Parameter: the ids as JSON.
UPDATE {move_journal} SET arrived = 1, sent = sent - 1 WHERE job_id IN (SELECT value FROM json_each(?1)) AND arrived = 0
