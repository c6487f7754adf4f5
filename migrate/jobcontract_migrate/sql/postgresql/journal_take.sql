-- A mover holds copies at a broker: those that count leave it, and are on their way. A row (id, home, whether it is there, attempts
-- and how many of them don't count when it was taken first) for each job: what is on its way to the target is to be moved, of
-- anything else this is a copy too many.
-- Parameters: target; arrays of ids, copies, attempts, and those that don't count; the broker.
INSERT INTO {move_journal} AS known (job_id, home, copy, sent, arrived, attempt, refunded)
SELECT job_id, %s, copy, 1, 0, attempt, refunded
FROM unnest(%s::text[], %s::text[], %s::integer[], %s::integer[]) AS held (job_id, copy, attempt, refunded) ORDER BY job_id
ON CONFLICT (job_id) DO UPDATE
SET (home, copy, arrived, attempt, refunded) = (
    SELECT CASE WHEN leaves THEN excluded.home ELSE known.home END,
           coalesce(known.copy, excluded.copy),
           CASE WHEN leaves THEN 0 ELSE known.arrived END,
           CASE WHEN leaves THEN excluded.attempt ELSE coalesce(known.attempt, excluded.attempt) END,
           CASE WHEN leaves THEN excluded.refunded ELSE coalesce(known.refunded, excluded.refunded) END
    FROM (SELECT known.home = %s AND coalesce(known.copy, excluded.copy) = excluded.copy) AS asked (leaves)
)
RETURNING job_id, home, arrived, attempt, refunded
