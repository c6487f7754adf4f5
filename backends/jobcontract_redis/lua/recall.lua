-- Who stands in the place of each job, if anybody does. Only looks.
--
-- KEYS[1] idem  HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id  STRING  the job as it was registered
-- prefix..j:id  HASH    state
--
-- ARGV: prefix; then for each job: id, idempotency key ('' is none), fingerprint
-- Gives for each job: "id state conflict", or '' when nobody does.
local prefix = ARGV[1]
local replies = {}
for i = 2, #ARGV, 3 do
    local id, key, fingerprint = unpack(ARGV, i, i + 2)
    local held = key ~= '' and redis.call('HGET', KEYS[1], key)
    local holder, conflict = id, '0'
    if redis.call('EXISTS', prefix .. 'b:' .. id) == 0 and held then
        holder = string.sub(held, 1, 36)
        conflict = string.sub(held, 37) == fingerprint and '0' or '1'
    end
    if redis.call('EXISTS', prefix .. 'b:' .. holder) == 1 then
        replies[#replies + 1] = holder .. ' ' .. (redis.call('HGET', prefix .. 'j:' .. holder, 'state') or 'ready') .. ' ' .. conflict
    else
        replies[#replies + 1] = ''
    end
end
return replies
