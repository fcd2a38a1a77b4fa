-- ARGV: the first rank, the most events
-- Returns the conversation and the stamp of each event, by stamp and without notes.
local first, most = tonumber(argument()), tonumber(argument())
local found, shown = redis.call('ZRANGE', key('stamps'), first, first + most - 1, 'WITHSCORES'), {}
for i = 1, #found, 2 do
  shown[#shown + 1] = { redis.call('HGET', key('event', found[i]), 'conversation') or '', found[i + 1] }
end
return shown
