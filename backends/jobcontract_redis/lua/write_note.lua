-- Writes a note that says what is expected.
--
-- KEYS[1] notes  HASH  name -> text (of the namespace, not of a queue)
--
-- ARGV: name, text; then what the note is expected to say, nothing when it must not exist
-- Gives 1 if it was written, else 0.
if #ARGV == 2 then
    return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
end
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[3] then
    return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
