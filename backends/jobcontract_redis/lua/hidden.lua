-- Jobs that are hidden and no traces yet.
--
-- KEYS[1] moving  ZSET    id -> 0: what is hidden and no trace yet
-- KEYS[2] idem    HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id    STRING  the job as it was registered
-- prefix..j:id    HASH    state, was, attempt, refunded, due, finished, error
--
-- ARGV: prefix, limit
-- Gives each job as it leaves.
--
-- USES depart
local replies = {}
for i, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[2] - 1)) do
    replies[i] = depart(ARGV[1], KEYS[2], id)
end
return replies
