-- ARGV: a query for lanes, as in lanes.lua
-- Returns since when the lane that a lease would take has been ready (-1: none), and the microseconds until time alone
-- makes one ready (-1: none will be).
local kinds, only = read_query()
local best = choose(kinds, only)
return { best and best[3] or -1, patience(kinds, only) }
