-- Running to ready later, or to dead when permanent or when the attempts are spent. Fenced.
--
-- KEYS[1] lease    ZSET    id -> when the lease ends, in ms
-- KEYS[2] running  HASH    id -> token of the claim
-- KEYS[3] ready    ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[4] dead     ZSET    id -> when it died, in ms
-- KEYS[5] wake     ZSET    one member while there may be something to claim
-- prefix..b:id     STRING  the job as it was registered
-- prefix..j:id     HASH    state, attempt, refunded, due, error
--
-- ARGV: prefix; then for each job: id, token, error, delay in ms, 1 when permanent
-- Gives for each job: its new run_at in ms, -1 when it is dead, 0 for a lost lease.
--
-- A full server lets it run: ZREM, which frees memory, is its first write.
--
-- USES clock levels settle
local lease, running, ready, dead, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix = ARGV[1]

local replies, again = {}, false
for i = 2, #ARGV, 5 do
    local id, token, reason, delay, permanent = unpack(ARGV, i, i + 4)
    local expires = redis.call('ZSCORE', lease, id)
    if redis.call('HGET', running, id) == token and expires and tonumber(expires) > now then
        local priority, most = limits(prefix, id)
        local found = redis.call('HMGET', prefix .. 'j:' .. id, 'attempt', 'refunded')
        local spent = (tonumber(found[1]) or 0) - (tonumber(found[2]) or 0)
        redis.call('ZREM', lease, id)
        redis.call('HDEL', running, id)
        if permanent == '1' or not most or spent >= most then
            bury(prefix, dead, id, now, reason)
            replies[#replies + 1] = -1
        else
            make_ready(prefix, ready, id, priority, now + delay)
            redis.call('HSET', prefix .. 'j:' .. id, 'error', reason)
            replies[#replies + 1] = now + delay
            again = true
        end
    else
        replies[#replies + 1] = 0
    end
end
if again then
    redis.call('ZADD', wake, 0, 'work')
end
return replies
