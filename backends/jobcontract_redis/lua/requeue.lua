-- Dead or cancelled to ready, due now, with all attempts to spend again; a ready job becomes due now.
--
-- KEYS[1] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[2] dead       ZSET    id -> when it died, in ms
-- KEYS[3] cancelled  ZSET    id -> when it was cancelled, in ms
-- KEYS[4] wake       ZSET    one member while there may be something to claim
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state, attempt, refunded, due
--
-- ARGV: prefix; then the ids
-- Gives each job's state afterwards, '' for an unknown id. A dead job whose body is gone stays dead.
--
-- USES clock levels settle
local ready, wake = KEYS[1], KEYS[4]
local finished = { dead = KEYS[2], cancelled = KEYS[3] }
local prefix = ARGV[1]

local replies, again = {}, false
for i = 2, #ARGV do
    local id = ARGV[i]
    local job = prefix .. 'j:' .. id
    local found = redis.call('HMGET', job, 'state', 'attempt')
    local priority = limits(prefix, id)
    local state = found[1] or priority and 'ready' or ''
    if priority and finished[state] then
        redis.call('ZREM', finished[state], id)
        redis.call('HSET', job, 'refunded', found[2] or 0)
        make_ready(prefix, ready, id, priority, now)
        state, again = 'ready', true
    elseif priority and state == 'ready' then
        local score = redis.call('ZSCORE', ready, id)
        if not score or score % LEVEL > now then
            redis.call('ZREM', ready, id)
            make_ready(prefix, ready, id, priority, now)
            again = true
        end
    end
    replies[#replies + 1] = state
end
if again then
    redis.call('ZADD', wake, 0, 'work')
end
return replies
