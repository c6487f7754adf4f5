-- Store new jobs of one queue: all of them, or none when memory is full.
--
-- KEYS[1] ready  ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[2] ids    ZSET    id -> 0: every job of the queue, in the order of its id
-- KEYS[3] idem   HASH    idempotency key -> id of its holder .. fingerprint
-- KEYS[4] wake   ZSET    one member while there may be something to claim
-- KEYS[5] gate   HASH    intake: "0" while the store is shut
-- prefix..b:id   STRING  the job as it was registered: "created run_at priority max_attempts kind #key #headers\n",
--                        then key, headers and input; times are ms and us
-- prefix..j:id   HASH    what changed since; absent until the first claim
--
-- ARGV: prefix; then for each job: id, score without the time, run_at in ms ('' is now), run_at in us ('' is now),
--       the rest of the body, idempotency key ('' is none), fingerprint
-- Gives for each job: 1, or "id state conflict" of the job that is in its place, or 0: it is new, and the store is shut.
--
-- USES clock
local ready, ids, idem, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix = ARGV[1]

local function occupied(id, conflict)
    return id .. ' ' .. (redis.call('HGET', prefix .. 'j:' .. id, 'state') or 'ready') .. ' ' .. conflict
end

local shut = redis.call('HGET', KEYS[5], 'intake') == '0'
local replies, scored, known = {}, {}, {}
for i = 2, #ARGV, 7 do
    local id, level, due, exact, rest, key, fingerprint = unpack(ARGV, i, i + 6)
    local reply
    if key ~= '' then
        local held = redis.call('HGET', idem, key)
        local holder = held and string.sub(held, 1, 36)
        -- A holder whose body was deleted behind our back holds nothing any more.
        if holder and holder ~= id and redis.call('EXISTS', prefix .. 'b:' .. holder) == 1 then
            reply = occupied(holder, string.sub(held, 37) == fingerprint and '0' or '1')
        end
    end
    if not reply then
        if due == '' then
            due, exact = now, now .. '000'
        end
        if redis.call('EXISTS', prefix .. 'b:' .. id, prefix .. 'j:' .. id) > 0 then
            reply = occupied(id, '0')
        elseif shut then
            reply = 0
        else
            -- The first write of the script, and one that a full server refuses: nothing was written then.
            redis.call('SET', prefix .. 'b:' .. id, now .. ' ' .. exact .. ' ' .. rest)
            scored[#scored + 1] = level + due
            scored[#scored + 1] = id
            known[#known + 1] = 0
            known[#known + 1] = id
            if key ~= '' then
                redis.call('HSET', idem, key, id .. fingerprint)
            end
            reply = 1
        end
    end
    replies[#replies + 1] = reply
end
for first = 1, #scored, 1000 do -- unpack fails near 8000 values
    local last = math.min(first + 999, #scored)
    redis.call('ZADD', ready, unpack(scored, first, last))
    redis.call('ZADD', ids, unpack(known, first, last))
end
if #scored > 0 then
    redis.call('ZADD', wake, 0, 'work')
end
return replies
