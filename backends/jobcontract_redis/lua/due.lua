-- What a claim of LIMIT jobs would find in one queue, without taking it.
--
-- KEYS[1] ready  ZSET  id -> (9 - priority) * 2^42 + run_at in ms
-- KEYS[2] queue  HASH  "paused" while claims skip the queue
--
-- ARGV: limit
-- Gives in how many ms the next future job is due, -1 when there is none; then the scores of the due jobs, best first.
--
-- USES clock levels
local ready = KEYS[1]
local limit = tonumber(ARGV[1])
local replies = { -1 }
if redis.call('HEXISTS', KEYS[2], 'paused') == 1 then
    return replies
end

local floor, next_due = 0, nil
while true do
    local first = redis.call('ZRANGEBYSCORE', ready, floor, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not first[1] then
        break
    end
    local level = first[2] - first[2] % LEVEL
    local wanted = limit + 1 - #replies
    if wanted > 0 then
        local due = redis.call('ZRANGEBYSCORE', ready, level, level + now, 'WITHSCORES', 'LIMIT', 0, wanted)
        for i = 2, #due, 2 do
            replies[#replies + 1] = tonumber(due[i])
        end
    end
    local later = redis.call('ZRANGEBYSCORE', ready, level + now + 1, level + LEVEL - 1, 'WITHSCORES', 'LIMIT', 0, 1)
    if later[1] and (not next_due or later[2] % LEVEL < next_due) then
        next_due = later[2] % LEVEL
    end
    floor = level + LEVEL
end
if next_due then
    replies[1] = next_due - now
end
return replies
