-- Hide jobs that can leave: ready ones first, in the order in which they would be claimed, then dead and cancelled ones.
--
-- KEYS[1] gate       HASH    epoch
-- KEYS[2] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[3] dead       ZSET    id -> when it died, in ms
-- KEYS[4] cancelled  ZSET    id -> when it was cancelled, in ms
-- KEYS[5] moving     ZSET    id -> 0: what is hidden and no trace yet
-- KEYS[6] idem       HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state, was, finished
--
-- ARGV: prefix, epoch, limit
-- Gives -1 when the epoch is over; else each job as it leaves (see parts/depart.lua).
--
-- USES depart
local gate, moving, idem = KEYS[1], KEYS[5], KEYS[6]
local prefix, limit = ARGV[1], tonumber(ARGV[3])
if (redis.call('HGET', gate, 'epoch') or '0') ~= ARGV[2] then
    return -1
end

local replies = {}
local function take(set, was)
    if limit <= #replies then
        return
    end
    local found = redis.call('ZRANGE', set, 0, limit - #replies - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
        local id = found[i]
        redis.call('ZREM', set, id)
        redis.call('ZADD', moving, 0, id)
        redis.call('HSET', prefix .. 'j:' .. id, 'state', 'moving', 'was', was)
        if was ~= 'ready' then
            redis.call('HSET', prefix .. 'j:' .. id, 'finished', found[i + 1])
        end
        replies[#replies + 1] = depart(prefix, idem, id)
    end
end
take(KEYS[2], 'ready')
take(KEYS[3], 'dead')
take(KEYS[4], 'cancelled')
return replies
