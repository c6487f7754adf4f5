-- Jobs are about to be sent to a broker: it is their home now, and one more copy of each may be there. What a copy did there
-- before stands. Parameters: home; array of ids.
INSERT INTO {move_journal} AS known (job_id, home, sent)
SELECT job_id, %s, 1 FROM unnest(%s::text[]) AS job_id ORDER BY job_id
ON CONFLICT (job_id) DO UPDATE
SET home = excluded.home,
    copy = CASE WHEN known.home = excluded.home THEN known.copy END,
    sent = known.sent + 1,
    arrived = 1
