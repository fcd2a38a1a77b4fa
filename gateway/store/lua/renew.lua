-- ARGV: kind, lane, fence, how long (microseconds)
-- Answers the signals since the lease began.
local kind, lane, fence = argument(), argument(), argument()
local state = hold(kind, lane, fence)
if not state then return false end
local lapses = real + tonumber(argument())
if lapses < state.lapses then news[ready_index(kind, state)] = true end -- who waits would look too late
state.lapses = lapses
save_lane(kind, lane, state)
settle()
if kind ~= 'turn' then return {} end
return redis.call('LRANGE', key('signals', lane), 0, -1)
