-- ARGV: worker, duration (microseconds); a query for lanes, as in lanes.lua; the prefetch, as in leases.lua
-- Leases the longest-ready lane. Then returns the answer of peek.lua, and the lease or false.
local worker, long = argument(), tonumber(argument())
local kinds, only = read_query()
local reads = list()
local best = choose(kinds, only)
if not best then return { -1, patience(kinds, only), false } end
local shown = take_lane(best[1], best[2], worker, long, unpack(reads))
settle()
best = choose(kinds, only)
return { best and best[3] or -1, patience(kinds, only), shown }
