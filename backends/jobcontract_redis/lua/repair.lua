-- Look at the next COUNT jobs of one queue, and put those right whose record and sets contradict each other: what no
-- script of ours leaves behind, but a deleted or evicted key does.
--
-- KEYS[1] ids        ZSET    id -> 0: every job of the queue, in the order of its id
-- KEYS[2] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[3] lease      ZSET    id -> when the lease ends, in ms
-- KEYS[4] running    HASH    id -> token of the claim
-- KEYS[5] done       ZSET    id -> when it was done, in ms
-- KEYS[6] dead       ZSET    id -> when it died, in ms
-- KEYS[7] cancelled  ZSET    id -> when it was cancelled, in ms
-- KEYS[8] wake       ZSET    one member while there may be something to claim
-- KEYS[9] queue      HASH    "repaired": the id up to which an earlier call has looked
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state, due, error
--
-- ARGV: prefix, count
-- Gives how many went back to ready, and how many died.
--
-- A full server lets it run: an HDEL is its first write.
--
-- USES clock levels settle
local ids, ready, lease, running, dead, wake, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[8], KEYS[9]
local finished = { done = KEYS[5], dead = KEYS[6], cancelled = KEYS[7] }
local prefix, count = ARGV[1], tonumber(ARGV[2])

local from = redis.call('HGET', queue, 'repaired')
local looked_at = redis.call('ZRANGEBYLEX', ids, from and '(' .. from or '-', '+', 'LIMIT', 0, count)
redis.call('HDEL', queue, 'repaired')
if #looked_at == count then
    redis.call('HSET', queue, 'repaired', looked_at[count])
end

local again, died = 0, 0
for _, id in ipairs(looked_at) do
    local found = redis.call('HMGET', prefix .. 'j:' .. id, 'state', 'due')
    local state = found[1] or 'ready'
    local priority = limits(prefix, id)
    if finished[state] then
        if not redis.call('ZSCORE', finished[state], id) then
            redis.call('ZADD', finished[state], now, id)
        end
    elseif state == 'moving' or state == 'moved' then
        -- on its way to another store, or a trace of what went
    elseif not priority then
        if not redis.call('ZSCORE', lease, id) then -- otherwise its worker may still finish it
            redis.call('ZREM', ready, id)
            redis.call('HDEL', running, id)
            bury(prefix, dead, id, now, BODY_GONE)
            died = died + 1
        end
    elseif state == 'running' then
        if not redis.call('ZSCORE', lease, id) then
            redis.call('HDEL', running, id)
            make_ready(prefix, ready, id, priority, now)
            again = again + 1
        end
    elseif not redis.call('ZSCORE', ready, id) then
        local exact = string.match(redis.call('GETRANGE', prefix .. 'b:' .. id, 0, 63), '^%d+ (%d+) ')
        make_ready(prefix, ready, id, priority, tonumber(found[2]) or math.ceil(exact / 1000))
        again = again + 1
    end
end
if again > 0 then
    redis.call('ZADD', wake, 0, 'work')
end
return { again, died }
