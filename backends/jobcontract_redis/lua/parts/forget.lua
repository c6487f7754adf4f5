-- Remove all of one finished job but its place in the set of its state, and free its key.
local function forget(prefix, ids, idem, id)
    local head = redis.call('GETRANGE', prefix .. 'b:' .. id, 0, 1023) -- the first line and the key always fit
    local length, start = string.match(head, '^%d+ %d+ %d %d+ %S+ (%d+) %d+\n()')
    if start and length ~= '0' then
        local key = string.sub(head, start, start + length - 1)
        if string.sub(redis.call('HGET', idem, key) or '', 1, 36) == id then
            redis.call('HDEL', idem, key)
        end
    end
    redis.call('DEL', prefix .. 'b:' .. id, prefix .. 'j:' .. id)
    redis.call('ZREM', ids, id)
end
