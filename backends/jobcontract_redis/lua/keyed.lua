-- Jobs that hold a key, by id.
--
-- KEYS[1] ids   ZSET    id -> 0: every job of the queue, in the order of its id
-- KEYS[2] idem  HASH    idempotency key -> id of its holder .. fingerprint
-- KEYS[3] done  ZSET    id -> when it was done, in ms
-- prefix..b:id  STRING  the job as it was registered
-- prefix..j:id  HASH    state, attempt, refunded, due, finished, error
--
-- ARGV: prefix, id behind which to begin, how many jobs to look at
-- Gives where to go on ('' when there are no more); then each job as it would leave, with its state in the place of where it was.
--
-- USES depart
local prefix = ARGV[1]
local looked_at = redis.call('ZRANGEBYLEX', KEYS[1], '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
local replies = { #looked_at == tonumber(ARGV[3]) and looked_at[#looked_at] or '' }
for _, id in ipairs(looked_at) do
    local state = redis.call('HGET', prefix .. 'j:' .. id, 'state')
    if state ~= 'moved' then
        local job = depart(prefix, KEYS[2], id)
        if job[8] ~= '' then
            job[2] = state == 'done' and 'done' or 'moving'
            job[6] = state == 'done' and redis.call('ZSCORE', KEYS[3], id) or ''
            replies[#replies + 1] = job
        end
    end
end
return replies
