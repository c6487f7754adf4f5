-- Parameter: store.
SELECT queue FROM {move_queues} WHERE store = %s ORDER BY queue
