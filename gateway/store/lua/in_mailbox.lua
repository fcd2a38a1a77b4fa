-- ARGV: conversation, the most events
-- Returns the events, in order.
local conversation, most = argument(), tonumber(argument())
local shown = {}
for i, seq in ipairs(redis.call('ZRANGE', key('mail', conversation), 0, most - 1)) do shown[i] = show_event(seq) end
return shown
