-- Claims skip the queue from now on.
--
-- KEYS[1] queue  HASH  "paused" while claims skip the queue
--
-- A full server lets it run: an HDEL is its first write.
redis.call('HDEL', KEYS[1], 'paused')
return redis.call('HSET', KEYS[1], 'paused', 1)
