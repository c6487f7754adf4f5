-- Hidden jobs become traces.
--
-- KEYS[1] gate    HASH  epoch
-- KEYS[2] moving  ZSET  id -> 0: what is hidden and no trace yet
-- KEYS[3] moved   ZSET  id -> 0: the traces
-- prefix..j:id    HASH  state
--
-- ARGV: prefix, epoch; then the ids
-- Gives -1 when the epoch is over; else how many were hidden.
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[2] then
    return -1
end
local prefix, count = ARGV[1], 0
for i = 3, #ARGV do
    if redis.call('ZREM', KEYS[2], ARGV[i]) == 1 then
        redis.call('ZADD', KEYS[3], 0, ARGV[i])
        redis.call('HSET', prefix .. 'j:' .. ARGV[i], 'state', 'moved')
        count = count + 1
    end
end
return count
