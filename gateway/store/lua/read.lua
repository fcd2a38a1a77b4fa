-- ARGV: log, the line to begin after, the most lines from there, the most lines from the end (-1: all)
-- Returns the number of the line before the first, and the lines, each as stamp, space, value.
local log, after, first, last = argument(), tonumber(argument()), tonumber(argument()), tonumber(argument())
if first == 0 then return { after, {} } end
return show_log(log, after, last, first)
