-- Jobs are about to be sent to a broker: it is their home now, and one more copy of each may be there. What a copy did there
-- before stands. Parameters: home; the ids as JSON.
INSERT INTO {move_journal} (job_id, home, sent)
SELECT value, ?1, 1 FROM json_each(?2) WHERE true
ON CONFLICT (job_id) DO UPDATE
SET home = excluded.home,
    copy = CASE WHEN home = excluded.home THEN copy END,
    sent = sent + 1,
    arrived = 1
