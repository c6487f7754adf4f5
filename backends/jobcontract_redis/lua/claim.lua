-- Lease at most LIMIT due jobs of one queue, by priority, then run_at, then id.
--
-- KEYS[1] ready    ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[2] lease    ZSET    id -> when the lease ends, in ms: the running jobs
-- KEYS[3] running  HASH    id -> token of the claim
-- KEYS[4] dead     ZSET    id -> when it died, in ms
-- KEYS[5] wake     ZSET    one member while there may be something to claim
-- KEYS[6] queue    HASH    "paused" while claims skip the queue
-- KEYS[7] gate     HASH    claims: "0" while the store is shut
-- prefix..b:id     STRING  the job as it was registered
-- prefix..j:id     HASH    state, attempt, refunded, due, error
--
-- ARGV: prefix, limit, length of the lease in ms, nonce; the n-th job's token is nonce:n
-- Gives: when the leases end, in ms (-1: the store is shut); then for each job "id attempt refunded due body", due '-' as registered.
--
-- Future jobs cost nothing: each priority that has jobs is one exact range of scores.
-- A full server lets it run: ZREM, which frees memory, is its first write.
--
-- USES clock levels settle
local ready, lease, running, dead, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, limit, nonce = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local expires = now + ARGV[3]
local PIECE, MOST_BYTES = 20, 8388608 -- of a batch of huge jobs, the rest is for the next claim
local replies = { expires }
if redis.call('HGET', KEYS[7], 'claims') == '0' then
    return { -1 }
end
if redis.call('HEXISTS', KEYS[6], 'paused') == 1 then
    return replies
end

local bytes = 0
local function take(ids)
    local bodies, leased, tokens = {}, {}, {}
    for i, id in ipairs(ids) do
        bodies[i] = prefix .. 'b:' .. id
    end
    bodies = redis.call('MGET', unpack(bodies))
    local found = {}
    for i, id in ipairs(ids) do -- all reads come first: what fails must fail before anything is written
        found[i] = redis.pcall('HMGET', prefix .. 'j:' .. id, 'attempt', 'refunded', 'due')
    end
    redis.call('ZREM', ready, unpack(ids))
    for i, id in ipairs(ids) do
        local body, job = bodies[i], prefix .. 'j:' .. id
        if found[i].err then -- a key of another type
            redis.call('DEL', job)
            found[i] = {}
        end
        if body then
            local attempt = (tonumber(found[i][1]) or 0) + 1
            local refunded = tonumber(found[i][2]) or 0
            redis.call('HSET', job, 'state', 'running', 'attempt', attempt)
            leased[#leased + 1] = expires
            leased[#leased + 1] = id
            tokens[#tokens + 1] = id
            tokens[#tokens + 1] = nonce .. ':' .. #replies
            bytes = bytes + #body
            replies[#replies + 1] = id .. ' ' .. attempt .. ' ' .. refunded .. ' ' .. (found[i][3] or '-') .. ' ' .. body
        else
            bury(prefix, dead, id, now, BODY_GONE)
        end
    end
    if leased[1] then
        redis.call('ZADD', lease, unpack(leased))
        redis.call('HSET', running, unpack(tokens))
    end
end

local floor = 0
local remains = false
while true do
    local first = redis.call('ZRANGEBYSCORE', ready, floor, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then
        break
    end
    local level = first[2] - first[2] % LEVEL
    local wanted = bytes < MOST_BYTES and math.min(limit - #replies + 1, PIECE) or 0
    local due = redis.call('ZRANGEBYSCORE', ready, level, level + now, 'LIMIT', 0, math.max(wanted, 1))
    if due[1] and wanted == 0 then
        remains = true
        break
    end
    if due[1] then
        take(due)
    end
    if #due < math.max(wanted, 1) then
        floor = level + LEVEL
    end
end
-- The next waiter is woken when something is left for it, and nobody for nothing.
if remains then
    redis.call('ZADD', wake, 0, 'work')
else
    redis.call('ZREM', wake, 'work')
end
return replies
