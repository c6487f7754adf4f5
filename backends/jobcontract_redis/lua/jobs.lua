-- A part of a page of jobs of one queue, newest id first.
--
-- KEYS[1] ids        ZSET    id -> 0: every job of the queue, in the order of its id
-- KEYS[2] lease      ZSET    id -> when the lease ends, in ms
-- KEYS[3] done       ZSET    id -> when it was done, in ms
-- KEYS[4] dead       ZSET    id -> when it died, in ms
-- KEYS[5] cancelled  ZSET    id -> when it was cancelled, in ms
-- KEYS[6] ready      ZSET    id -> (9 - priority) * 2^42 + run_at in ms
-- prefix..b:id       STRING  the job as it was registered
-- prefix..j:id       HASH    state, attempt, refunded, due, error
--
-- ARGV: prefix, id below which to begin ('' is at the top), state ('' is any), kind ('' is any), most jobs to give,
--       most jobs to look at
-- Gives where to go on ('' when there are no more); then for each job: id, state, attempt, refunded, due, finished,
-- expires, error, body.
--
-- USES describe
local sets = { running = KEYS[2], done = KEYS[3], dead = KEYS[4], cancelled = KEYS[5], ready = KEYS[6] }
local finished = { done = KEYS[3], dead = KEYS[4], cancelled = KEYS[5] }
local prefix, below, state, kind, limit, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if state ~= '' and not sets[state] then
    return { '' }
end

local candidates
local go_on = ''
local few = state ~= '' and redis.call('ZCARD', sets[state]) <= most
if few then -- as the dead usually are, among many done
    candidates = {}
    for _, id in ipairs(redis.call('ZRANGE', sets[state], 0, -1)) do
        if below == '' or id < below then
            candidates[#candidates + 1] = id
        end
    end
    table.sort(candidates, function(one, other) return one > other end)
else
    candidates = redis.call('ZREVRANGEBYLEX', KEYS[1], below == '' and '+' or '(' .. below, '-', 'LIMIT', 0, most)
    if #candidates == most then
        go_on = candidates[most]
    end
end

local replies = { go_on }
for _, id in ipairs(candidates) do
    if #replies > limit then
        replies[1] = ''
        break
    end
    local stands = state == '' or (redis.call('HGET', prefix .. 'j:' .. id, 'state') or 'ready') == state
    if stands and kind ~= '' then
        local head = redis.call('GETRANGE', prefix .. 'b:' .. id, 0, 255)
        stands = string.match(head, '^%d+ %d+ %d %d+ (%S+) ') == kind
    end
    if stands then
        replies[#replies + 1] = describe(prefix, KEYS[2], finished, id)
    end
end
return replies
