-- ARGV: a query for lanes, as in lanes.lua
-- Returns the first ready moment of the next lane to lease (-1: none), and the microseconds until time alone makes a
-- lane ready (-1: none will be).
local kinds, only = read_query()
local best = choose(kinds, only)
return { best and best[3] or -1, patience(kinds, only) }
