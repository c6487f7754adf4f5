-- Claims see the queue again, and a waiting worker is woken.
--
-- KEYS[1] queue  HASH  "paused" while claims skip the queue
-- KEYS[2] wake   ZSET  one member while there may be something to claim
redis.call('HDEL', KEYS[1], 'paused')
return redis.call('ZADD', KEYS[2], 0, 'work')
