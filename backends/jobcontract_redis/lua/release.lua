-- Running to ready; the claim does not count against max_attempts. Fenced.
--
-- KEYS[1] lease    ZSET    id -> when the lease ends, in ms
-- KEYS[2] running  HASH    id -> token of the claim
-- KEYS[3] ready    ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[4] dead     ZSET    id -> when it died, in ms
-- KEYS[5] wake     ZSET    one member while there may be something to claim
-- prefix..b:id     STRING  the job as it was registered
-- prefix..j:id     HASH    state, refunded, due
--
-- ARGV: prefix, delay in ms; then for each job: id, token
-- Gives for each job: its new run_at in ms, -1 when it is dead (its body is gone), 0 for a lost lease.
--
-- A full server lets it run: ZREM, which frees memory, is its first write.
--
-- USES clock levels settle
local lease, running, ready, dead, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix = ARGV[1]
local due = now + ARGV[2]

local replies, again = {}, false
for i = 3, #ARGV, 2 do
    local id, token = ARGV[i], ARGV[i + 1]
    local expires = redis.call('ZSCORE', lease, id)
    if redis.call('HGET', running, id) == token and expires and tonumber(expires) > now then
        local priority = limits(prefix, id)
        redis.call('ZREM', lease, id)
        redis.call('HDEL', running, id)
        if priority then
            make_ready(prefix, ready, id, priority, due)
            redis.call('HINCRBY', prefix .. 'j:' .. id, 'refunded', 1)
            replies[#replies + 1] = due
            again = true
        else
            bury(prefix, dead, id, now, BODY_GONE)
            replies[#replies + 1] = -1
        end
    else
        replies[#replies + 1] = 0
    end
end
if again then
    redis.call('ZADD', wake, 0, 'work')
end
return replies
