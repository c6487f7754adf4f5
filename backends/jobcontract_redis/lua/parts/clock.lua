-- The server's clock, in milliseconds since 1970. Not in microseconds: sixteen digits don't survive Lua's `..`.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
