-- Claims skip the queue from now on.
--
-- KEYS[1] queue  HASH  "paused" while claims skip the queue
return redis.call('HSET', KEYS[1], 'paused', 1)
