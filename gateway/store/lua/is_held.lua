-- ARGV: conversation
-- Returns 1 if its turn is held by a lease that has not lapsed.
local state = read_lane('turn', argument())
return state.worker and state.lapses > real and 1 or 0
