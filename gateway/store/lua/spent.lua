-- ARGV: the names of counts
-- Returns the fields and amounts of each; none for an ended count, or a count without additions.
local shown = {}
for i, name in ipairs(list()) do shown[i] = show_spent(name) end
return shown
