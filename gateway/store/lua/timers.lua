-- ARGV: the first rank, the most timers
-- Returns timers: id, due, event.
local first, most = tonumber(argument()), tonumber(argument())
local shown, found = {}, redis.call('ZRANGE', key('timers'), first, first + most - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  shown[#shown + 1] = { found[i], found[i + 1], redis.call('HGET', key('timer'), found[i]) }
end
return shown
