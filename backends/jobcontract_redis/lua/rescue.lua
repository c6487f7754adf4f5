-- Expired leases, at most LIMIT of them, back to ready, or to dead when the attempts are spent.
--
-- KEYS[1] lease    ZSET    id -> when the lease ends, in ms
-- KEYS[2] running  HASH    id -> token of the claim
-- KEYS[3] ready    ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[4] dead     ZSET    id -> when it died, in ms
-- KEYS[5] wake     ZSET    one member while there may be something to claim
-- prefix..b:id     STRING  the job as it was registered
-- prefix..j:id     HASH    state, attempt, refunded, due, error
--
-- ARGV: prefix, limit
-- Gives how many went back to ready, and how many died.
--
-- A full server lets it run: ZREM, which frees memory, is its first write.
--
-- USES clock levels settle
local lease, running, ready, dead, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix = ARGV[1]

local expired = redis.call('ZRANGEBYSCORE', lease, '-inf', now, 'LIMIT', 0, ARGV[2])
local again, died = 0, 0
for _, id in ipairs(expired) do
    local priority, most = limits(prefix, id)
    local found = redis.call('HMGET', prefix .. 'j:' .. id, 'attempt', 'refunded')
    local attempt = tonumber(found[1]) or 0
    redis.call('ZREM', lease, id)
    redis.call('HDEL', running, id)
    if not most then
        bury(prefix, dead, id, now, BODY_GONE)
        died = died + 1
    else
        local reason = 'the lease of attempt ' .. attempt .. ' ran out: its worker died or stopped renewing it'
        if attempt - (tonumber(found[2]) or 0) >= most then
            bury(prefix, dead, id, now, reason)
            died = died + 1
        else
            make_ready(prefix, ready, id, priority, now)
            redis.call('HSET', prefix .. 'j:' .. id, 'error', reason)
            again = again + 1
        end
    end
end
if again > 0 then
    redis.call('ZADD', wake, 0, 'work')
end
return { again, died }
