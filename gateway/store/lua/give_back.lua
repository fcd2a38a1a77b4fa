-- ARGV: kind, lane, worker, fence ('': whichever)
-- Undo a lease that nobody received: the next one is told what this one would have been told.
local kind, lane, worker, fence = argument(), argument(), argument(), argument()
local state = read_lane(kind, lane)
if state.worker ~= worker or (fence ~= '' and state.fence ~= tonumber(fence)) then return end
state.worker = nil
save_lane(kind, lane, state)
news[ready_index(kind, state)] = true
settle()
