-- Running to done. Fenced: the token is current and the lease unexpired, or nothing changes.
--
-- KEYS[1] lease    ZSET    id -> when the lease ends, in ms
-- KEYS[2] running  HASH    id -> token of the claim
-- KEYS[3] done     ZSET    id -> when it was done, in ms
-- KEYS[4] ids      ZSET    every job of the queue
-- KEYS[5] idem     HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id     STRING  the job as it was registered
-- prefix..j:id     HASH    state
--
-- ARGV: prefix, how long done jobs are kept in ms (0 is for ever); then for each job: id, token
-- Gives for each job: 1, or 0 for a lost lease.
--
-- A full server lets it run: ZREM, which frees memory, is its first write.
--
-- USES clock forget
local lease, running, done, ids, idem = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, keep = ARGV[1], tonumber(ARGV[2])

local asked = {}
for i = 3, #ARGV, 2 do
    asked[#asked + 1] = ARGV[i]
end
local tokens = redis.call('HMGET', running, unpack(asked))
local expiries = redis.call('ZMSCORE', lease, unpack(asked))
local replies, held, finished = {}, {}, {}
for i, id in ipairs(asked) do
    if tokens[i] == ARGV[2 * i + 2] and expiries[i] and tonumber(expiries[i]) > now then
        replies[i] = 1
        held[#held + 1] = id
        finished[#finished + 1] = now
        finished[#finished + 1] = id
    else
        replies[i] = 0
    end
end
if not held[1] then
    return replies
end
redis.call('ZREM', lease, unpack(held))
redis.call('HDEL', running, unpack(held))
for _, id in ipairs(held) do
    redis.call('HSET', prefix .. 'j:' .. id, 'state', 'done')
end
redis.call('ZADD', done, unpack(finished))
if keep > 0 then -- each finished job takes two outdated ones along, so that the history stays bounded
    local outdated = redis.call('ZRANGEBYSCORE', done, '-inf', now - keep, 'LIMIT', 0, 2 * #held)
    for _, id in ipairs(outdated) do
        redis.call('ZREM', done, id)
        forget(prefix, ids, idem, id)
    end
end
return replies
