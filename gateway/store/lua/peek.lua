-- ARGV: the kinds; one lane only: whether, and which
-- Answers since when the lane has been ready that a lease would take (-1: none), and how long until one becomes ready.
local kinds = list()
local only = flag() and argument() or nil
local best = choose(kinds, only)
return { best and best[3] or -1, patience(kinds) }
