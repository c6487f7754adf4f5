-- One job as Lookup shows it: id, state, attempt, refunded, due, finished, expires, error, body. '' is what it has not; an
-- error may be empty, so that none is false, which arrives as nil.
local function describe(prefix, lease, finished, id)
    local state, attempt, refunded, due, reason =
        unpack(redis.call('HMGET', prefix .. 'j:' .. id, 'state', 'attempt', 'refunded', 'due', 'error'))
    local body = redis.call('GET', prefix .. 'b:' .. id)
    if not (state or body) then
        return nil
    end
    state = state or 'ready'
    local set = finished[state]
    return {
        id, state, attempt or '0', refunded or '0', due or '',
        set and redis.call('ZSCORE', set, id) or '',
        state == 'running' and redis.call('ZSCORE', lease, id) or '',
        reason, body or '',
    }
end
