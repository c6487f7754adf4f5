-- Jobs that were on their way are in their home. Parameter: array of ids.
UPDATE {move_journal} SET arrived = 1, sent = sent - 1 WHERE job_id = ANY (%s::text[]) AND arrived = 0
