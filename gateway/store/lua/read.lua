-- ARGV: log, after which line, the last so many (-1: all)
-- Answers the number of the line before the first, and the lines: each its stamp, a space, its value.
local name = key('log', argument())
local after, last = tonumber(argument()), tonumber(argument())
if last >= 0 then after = math.max(after, redis.call('LLEN', name) - last) end
return { after, redis.call('LRANGE', name, after, -1) }
