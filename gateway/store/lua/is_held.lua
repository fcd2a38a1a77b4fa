-- ARGV: conversation
-- Answers whether somebody holds its turn.
local state = read_lane('turn', argument())
return state.worker and state.lapses > real and 1 or 0
