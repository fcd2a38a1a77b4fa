-- ARGV: log, the line after which to begin, the most lines from the end (-1: all)
-- Returns the number of the line before the first, and the lines: each its stamp, a space, its value.
return show_log(argument(), tonumber(argument()), tonumber(argument()))
