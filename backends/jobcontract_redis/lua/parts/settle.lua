-- How a job goes back to ready, or dies. What never changes of a job stands in the first line of its body.

-- Priority and max_attempts, or nil when the body is gone.
local function limits(prefix, id)
    local head = redis.pcall('GETRANGE', prefix .. 'b:' .. id, 0, 63)
    if type(head) ~= 'string' then -- a key of another type
        return nil
    end
    local priority, most = string.match(head, '^%d+ %d+ (%d) (%d+) ')
    return tonumber(priority), tonumber(most)
end

local function bury(prefix, dead, id, at, reason)
    redis.call('ZADD', dead, at, id)
    redis.call('HSET', prefix .. 'j:' .. id, 'state', 'dead', 'error', reason)
end

local function make_ready(prefix, ready, id, priority, due)
    redis.call('ZADD', ready, (9 - priority) * LEVEL + due, id)
    redis.call('HSET', prefix .. 'j:' .. id, 'state', 'ready', 'due', due)
end

local BODY_GONE = 'the body of the job is missing from Redis: it was deleted or evicted'
