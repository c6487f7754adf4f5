-- Lets go of the locks of watch.sql; one row.
-- Parameter: array of queue.
SELECT count(pg_advisory_unlock_shared(hashtextextended({channel} || queue, 0))) FROM unnest(%s::text[]) AS queue
