-- Hidden jobs back to where they were.
--
-- KEYS[1] gate       HASH    epoch
-- KEYS[2] moving     ZSET    id -> 0: what is hidden and no trace yet
-- KEYS[3] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[4] dead       ZSET    id -> when it died, in ms
-- KEYS[5] cancelled  ZSET    id -> when it was cancelled, in ms
-- KEYS[6] wake       ZSET    one member while there may be something to claim
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state, was, due, finished
--
-- ARGV: prefix, epoch, limit
-- Gives -1 when the epoch is over; else how many.
--
-- USES clock levels settle
local moving, ready, finished = KEYS[2], KEYS[3], { dead = KEYS[4], cancelled = KEYS[5] }
local prefix = ARGV[1]
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[2] then
    return -1
end
local ids = redis.call('ZRANGE', moving, 0, ARGV[3] - 1)
for _, id in ipairs(ids) do
    local job = prefix .. 'j:' .. id
    local was, due, at = unpack(redis.call('HMGET', job, 'was', 'due', 'finished'))
    redis.call('ZREM', moving, id)
    redis.call('HDEL', job, 'was', 'finished')
    if finished[was] then
        redis.call('ZADD', finished[was], at, id)
        redis.call('HSET', job, 'state', was)
    else
        local priority = limits(prefix, id)
        local exact = string.match(redis.call('GETRANGE', prefix .. 'b:' .. id, 0, 63), '^%d+ (%d+) ')
        make_ready(prefix, ready, id, priority, tonumber(due) or math.ceil(exact / 1000))
    end
end
if ids[1] then
    redis.call('ZADD', KEYS[6], 0, 'work')
end
return #ids
