-- ARGV: kind, lane, fence
-- Undo a lease that nobody received: the next one is told what this one would have been told.
local kind, lane, fence = argument(), argument(), argument()
local state = hold(kind, lane, fence)
if not state then return end
state.worker = nil
save_lane(kind, lane, state)
news[way_of(kind, state)] = true
settle()
