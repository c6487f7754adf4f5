-- The notes of these names, and the clock.
--
-- KEYS[1] notes  HASH  name -> text (of the namespace, not of a queue)
--
-- ARGV: the names
-- Gives the time in ms, then each note, '' where there is none and 't' before its text where there is one.
--
-- USES clock
local replies = { now }
for i = 1, #ARGV do
    local text = redis.call('HGET', KEYS[1], ARGV[i])
    replies[#replies + 1] = text and 't' .. text or ''
end
return replies
