-- Traces, newest id first.
--
-- KEYS[1] moved  ZSET    id -> 0: the traces
-- KEYS[2] idem   HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id   STRING  the job as it was registered
-- prefix..j:id   HASH    state, was, attempt, refunded, due, finished, error
--
-- ARGV: prefix, id below which to begin, limit
-- Gives each job as it left.
--
-- USES depart
local replies = {}
for i, id in ipairs(redis.call('ZREVRANGEBYLEX', KEYS[1], '(' .. ARGV[2], '-', 'LIMIT', 0, ARGV[3])) do
    replies[i] = depart(ARGV[1], KEYS[2], id)
end
return replies
