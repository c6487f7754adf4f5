-- The leases end LENGTH from now. Fenced: an expired lease is not revived.
--
-- KEYS[1] lease    ZSET    id -> when the lease ends, in ms
-- KEYS[2] running  HASH    id -> token of the claim
--
-- ARGV: length of the lease in ms; then for each job: id, token
-- Gives for each job: when its lease ends, in ms, or 0 for a lost lease.
--
-- A full server lets it run: the first write is a ZREM, and what follows is not checked any more.
--
-- USES clock
local lease, running = KEYS[1], KEYS[2]
local renewed = now + ARGV[1]

local replies = {}
for i = 2, #ARGV, 2 do
    local id, token = ARGV[i], ARGV[i + 1]
    local expires = redis.call('ZSCORE', lease, id)
    if redis.call('HGET', running, id) == token and expires and tonumber(expires) > now then
        redis.call('ZREM', lease, id)
        redis.call('ZADD', lease, renewed, id)
        replies[#replies + 1] = renewed
    else
        replies[#replies + 1] = 0
    end
end
return replies
