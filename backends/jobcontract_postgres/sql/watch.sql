-- Holds the locks by which registering sessions see that somebody waits: see wake.sql. For the session; one row.
-- Parameter: array of queue.
SELECT count(pg_advisory_lock_shared(hashtextextended({channel} || queue, 0))::text) FROM unnest(%s::text[]) AS queue
