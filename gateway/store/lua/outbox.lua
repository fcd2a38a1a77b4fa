-- ARGV: conversation
return show_parts(argument(), -1)
