-- ARGV: kind, lane, worker, fence ('': any)
-- Undoes a lease not received by the caller. The next lease has the same work.
local kind, lane, worker, fence = argument(), argument(), argument(), argument()
local state = read_lane(kind, lane)
if state.worker ~= worker or (fence ~= '' and state.fence ~= tonumber(fence)) then return end
state.worker = nil
save_lane(kind, lane, state)
news[ready_index(kind, state)] = true
settle()
