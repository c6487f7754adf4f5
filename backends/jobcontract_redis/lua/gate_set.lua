-- Open or shut, unless a later epoch was seen: of the namespace, or of one queue.
--
-- KEYS[1] gate  HASH  epoch, intake, claims ("1" is open); absent is open, in epoch 0
--
-- ARGV: epoch, intake, claims
-- Gives the gate that holds afterwards: epoch, intake, claims.
local epoch, intake, claims = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'intake', 'claims'))
if tonumber(epoch or '0') > tonumber(ARGV[1]) then
    return { epoch, intake, claims }
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'intake', ARGV[2], 'claims', ARGV[3])
return { ARGV[1], ARGV[2], ARGV[3] }
