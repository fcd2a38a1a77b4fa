-- ARGV: log, after which line, the last so many (-1: all)
-- Answers the number of the line before the first, and the lines: each its stamp, a space, its value.
return show_log(argument(), tonumber(argument()), tonumber(argument()))
