-- Parameters: store, queue.
INSERT INTO {move_queues} (store, queue) VALUES (%s, %s) ON CONFLICT DO NOTHING
