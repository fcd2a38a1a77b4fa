-- ARGV: kind, lane, fence, duration (microseconds)
-- Returns the signals since the lease began, or false for a lost lease.
local kind, lane, fence = argument(), argument(), argument()
local state = hold(kind, lane, fence)
if not state then return false end
local lapses = real + tonumber(argument())
if lapses < state.lapses then news[ready_index(kind, state)] = true end -- otherwise waiters would look too late
state.lapses = lapses
save_lane(kind, lane, state)
settle()
if kind ~= 'turn' then return {} end
return redis.call('LRANGE', key('signals', lane), 0, -1)
