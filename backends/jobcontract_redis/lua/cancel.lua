-- Ready to cancelled.
--
-- KEYS[1] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[2] cancelled  ZSET    id -> when it was cancelled, in ms
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state
--
-- ARGV: prefix; then the ids
-- Gives each job's state afterwards, '' for an unknown id.
--
-- USES clock
local ready, cancelled = KEYS[1], KEYS[2]
local prefix = ARGV[1]

local replies = {}
for i = 2, #ARGV do
    local id = ARGV[i]
    if redis.call('ZREM', ready, id) == 1 then
        redis.call('ZADD', cancelled, now, id)
        redis.call('HSET', prefix .. 'j:' .. id, 'state', 'cancelled')
        replies[#replies + 1] = 'cancelled'
    else
        replies[#replies + 1] = redis.call('HGET', prefix .. 'j:' .. id, 'state')
            or redis.call('EXISTS', prefix .. 'b:' .. id) == 1 and 'ready'
            or ''
    end
end
return replies
