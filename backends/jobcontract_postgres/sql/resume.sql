-- Claims take from the queue again, and who waits for it wakes; one row, or none when it was not paused.
-- Parameter: queue.
WITH due AS (
    DELETE FROM {schema}.queues WHERE name = %s RETURNING name AS queue
)
SELECT {wake} FROM due
