-- One queue in numbers.
--
-- KEYS[1] ready      ZSET  id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[2] lease      ZSET  id -> when the lease ends, in ms
-- KEYS[3] done       ZSET  id -> when it was done, in ms
-- KEYS[4] dead       ZSET  id -> when it died, in ms
-- KEYS[5] cancelled  ZSET  id -> when it was cancelled, in ms
-- KEYS[6] queue      HASH  "paused" while claims skip the queue
--
-- Gives: due, scheduled, running, expired, dead, done, cancelled, age of the oldest due job in ms (-1: none), paused.
--
-- USES clock levels
local ready, lease = KEYS[1], KEYS[2]
local due, oldest = 0, nil
for level = 0, 9 * LEVEL, LEVEL do
    local count = redis.call('ZCOUNT', ready, level, level + now)
    if count > 0 then
        due = due + count
        local first = redis.call('ZRANGEBYSCORE', ready, level, level + now, 'WITHSCORES', 'LIMIT', 0, 1)
        oldest = math.max(oldest or 0, now - first[2] % LEVEL)
    end
end
local expired = redis.call('ZCOUNT', lease, '-inf', now)
return {
    due,
    redis.call('ZCARD', ready) - due,
    redis.call('ZCARD', lease),
    expired,
    redis.call('ZCARD', KEYS[4]),
    redis.call('ZCARD', KEYS[3]),
    redis.call('ZCARD', KEYS[5]),
    oldest or -1,
    redis.call('HEXISTS', KEYS[6], 'paused'),
}
