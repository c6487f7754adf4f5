-- Claims skip the queue from now on; one row.
-- Parameter: queue.
INSERT INTO {schema}.queues (name, paused)
VALUES (%s, true)
ON CONFLICT (name) DO UPDATE SET paused = true
RETURNING name
