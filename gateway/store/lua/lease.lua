-- ARGV: worker, how long (microseconds); what is wanted, as in lanes.lua; what is shown with it, as in leases.lua
-- Answers what peek.lua would afterwards, and the lease, if there was one to be had.
local worker, long = argument(), tonumber(argument())
local kinds, only, knows = read_wanted()
local reads = list()
local best = choose(kinds, only, knows)
if not best then return { -1, patience(kinds, only), false } end
local shown = take(best[1], best[2], worker, long, unpack(reads))
settle()
best = choose(kinds, only, knows)
return { best and best[3] or -1, patience(kinds, only), shown }
