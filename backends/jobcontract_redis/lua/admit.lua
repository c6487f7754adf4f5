-- Store jobs of another store as they were there. A placeholder or a trace gives way to the job itself.
--
-- KEYS[1] gate       HASH    epoch
-- KEYS[2] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[3] ids        ZSET    id -> 0: every job of the queue, in the order of its id
-- KEYS[4] idem       HASH    idempotency key -> id of its holder .. fingerprint
-- KEYS[5] wake       ZSET    one member while there may be something to claim
-- KEYS[6] done       ZSET    id -> when it was done, in ms
-- KEYS[7] dead       ZSET    id -> when it died, in ms
-- KEYS[8] cancelled  ZSET    id -> when it was cancelled, in ms
-- KEYS[9] moved      ZSET    id -> 0: the traces
-- KEYS[10] reserved  ZSET    id -> 0: the placeholders
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state, attempt, refunded, error
--
-- ARGV: prefix, epoch; then for each job: id, state, score, attempt, refunded, "1" and the error ('' is none), finished in ms, body,
--       idempotency key ('' is none that it holds), fingerprint
-- Gives -1 when the epoch is over; else for each job: "stored holder", holder being another job that holds its key ('-' is none).
local gate, ready, ids, idem = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local finished = { done = KEYS[6], dead = KEYS[7], cancelled = KEYS[8] }
local moved, reserved = KEYS[9], KEYS[10]
local prefix = ARGV[1]
if (redis.call('HGET', gate, 'epoch') or '0') ~= ARGV[2] then
    return -1
end
local replies, again = {}, false
for i = 3, #ARGV, 10 do
    local id, state, score, attempt, refunded, reason, at, body, key, fingerprint = unpack(ARGV, i, i + 9)
    local job = prefix .. 'j:' .. id
    local gives_way = redis.call('ZSCORE', moved, id) or redis.call('ZSCORE', reserved, id)
    local known = redis.call('EXISTS', prefix .. 'b:' .. id, job) > 0
    local stored = not known or (gives_way and state ~= 'moving')
    if stored then
        redis.call('SET', prefix .. 'b:' .. id, body)
        redis.call('ZREM', moved, id)
        redis.call('ZREM', reserved, id)
        redis.call('DEL', job)
        redis.call('HSET', job, 'state', state, 'attempt', attempt, 'refunded', refunded)
        if reason ~= '' then
            redis.call('HSET', job, 'error', string.sub(reason, 2))
        end
        redis.call('ZADD', ids, 0, id)
        if finished[state] then
            redis.call('ZADD', finished[state], at, id)
        elseif state == 'moving' then
            redis.call('ZADD', reserved, 0, id)
        else
            redis.call('ZADD', ready, score, id)
            again = true
        end
    end
    local other = '-'
    if key ~= '' then
        if stored then
            redis.call('HSETNX', idem, key, id .. fingerprint)
        end
        local holder = string.sub(redis.call('HGET', idem, key) or id, 1, 36)
        if holder ~= id then
            other = holder
        end
    end
    replies[#replies + 1] = (stored and '1 ' or '0 ') .. other
end
if again then
    redis.call('ZADD', KEYS[5], 0, 'work')
end
return replies
