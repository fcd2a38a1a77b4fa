-- ARGV: what is wanted, as in lanes.lua
-- Answers since when the lane has been ready that a lease would take (-1: none), and how long until one becomes ready.
local kinds, only, knows = read_wanted()
local best = choose(kinds, only, knows)
return { best and best[3] or -1, patience(kinds, only) }
