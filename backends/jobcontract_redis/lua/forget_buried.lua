-- Remove traces and placeholders, and free their keys.
--
-- KEYS[1] gate      HASH    epoch
-- KEYS[2] moved     ZSET    id -> 0: the traces
-- KEYS[3] reserved  ZSET    id -> 0: the placeholders
-- KEYS[4] ids       ZSET    every job of the queue
-- KEYS[5] idem      HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id      STRING  the job as it was registered
-- prefix..j:id      HASH    what changed since
--
-- ARGV: prefix, epoch, limit
-- Gives -1 when the epoch is over; else how many.
--
-- USES forget
if (redis.call('HGET', KEYS[1], 'epoch') or '0') ~= ARGV[2] then
    return -1
end
local count = 0
for _, set in ipairs({ KEYS[2], KEYS[3] }) do
    if count < tonumber(ARGV[3]) then
        for _, id in ipairs(redis.call('ZRANGE', set, 0, ARGV[3] - count - 1)) do
            redis.call('ZREM', set, id)
            forget(ARGV[1], KEYS[4], KEYS[5], id)
            count = count + 1
        end
    end
end
return count
