-- Forget at most LIMIT jobs that finished longer than AGE ago, and their keys.
--
-- KEYS[1] finished  ZSET    id -> when it finished, in ms: the done, the dead or the cancelled jobs
-- KEYS[2] ids       ZSET    every job of the queue
-- KEYS[3] idem      HASH    idempotency key -> id of its holder .. fingerprint
-- prefix..b:id      STRING  the job as it was registered
-- prefix..j:id      HASH    what changed since
--
-- ARGV: prefix, age in ms, limit
-- Gives how many were forgotten.
--
-- USES clock forget
local outdated = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(outdated) do
    redis.call('ZREM', KEYS[1], id)
    forget(ARGV[1], KEYS[2], KEYS[3], id)
end
return #outdated
