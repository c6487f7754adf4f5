-- One job as it leaves: id, where it was, attempt, refunded, due, finished, error, fingerprint ('' unless it holds its key), body.
local function depart(prefix, idem, id)
    local was, attempt, refunded, due, finished, reason =
        unpack(redis.call('HMGET', prefix .. 'j:' .. id, 'was', 'attempt', 'refunded', 'due', 'finished', 'error'))
    local body = redis.call('GET', prefix .. 'b:' .. id) or ''
    local fingerprint = ''
    local length, start = string.match(string.sub(body, 1, 1023), '^%d+ %d+ %d %d+ %S+ (%d+) %d+\n()')
    if start and length ~= '0' then
        local held = redis.call('HGET', idem, string.sub(body, start, start + length - 1)) or ''
        if string.sub(held, 1, 36) == id then
            fingerprint = string.sub(held, 37)
        end
    end
    return { id, was or '', attempt or '0', refunded or '0', due or '', finished or '', reason, fingerprint, body }
end
