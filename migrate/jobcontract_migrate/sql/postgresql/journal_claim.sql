-- Copies were claimed at a broker: the first one of each job is the one that counts. A row (id, home, the copy that counts,
-- whether it is there) for each job that the journal knows. Parameters: array of ids; array of copies; the broker.
UPDATE {move_journal} AS known
SET copy = CASE WHEN known.home = claimed.home THEN coalesce(known.copy, claimed.copy) ELSE known.copy END
FROM (
    SELECT DISTINCT ON (job_id) job_id, copy, %s AS home
    FROM unnest(%s::text[], %s::text[]) AS pair (job_id, copy)
    ORDER BY job_id, copy
) AS claimed
WHERE known.job_id = claimed.job_id
RETURNING known.job_id, known.home, known.copy, known.arrived
