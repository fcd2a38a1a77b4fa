-- ARGV: conversation
-- Returns 1 if an unlapsed lease holds the turn.
local state = read_lane('turn', argument())
return state.worker and state.lapses > real and 1 or 0
