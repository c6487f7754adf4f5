-- A mover holds copies at a broker: those that count leave it, and are on their way. A row (id, home, whether it is there, attempts
-- and how many of them don't count when it was taken first) for each job: what is on its way to the target is to be moved, of
-- anything else this is a copy too many.
-- Parameters: target; the copies as JSON, each of id, copy, attempts, and those that don't count; the broker.
INSERT INTO {move_journal} (job_id, home, copy, sent, arrived, attempt, refunded)
SELECT json_extract(value, '$[0]'), ?1, json_extract(value, '$[1]'), 1, 0, json_extract(value, '$[2]'), json_extract(value, '$[3]')
FROM json_each(?2) WHERE true
ON CONFLICT (job_id) DO UPDATE
SET (home, copy, arrived, attempt, refunded) = (
    SELECT CASE WHEN leaves THEN excluded.home ELSE home END,
           coalesce(copy, excluded.copy),
           CASE WHEN leaves THEN 0 ELSE arrived END,
           CASE WHEN leaves THEN excluded.attempt ELSE coalesce(attempt, excluded.attempt) END,
           CASE WHEN leaves THEN excluded.refunded ELSE coalesce(refunded, excluded.refunded) END
    FROM (SELECT home = ?3 AND coalesce(copy, excluded.copy) = excluded.copy AS leaves)
)
RETURNING job_id, home, arrived, attempt, refunded
