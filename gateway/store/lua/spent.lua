-- ARGV: the names of counts
-- Returns the fields and amounts of each; none for a count that has ended or was never added to.
local shown = {}
for i, name in ipairs(list()) do shown[i] = show_spent(name) end
return shown
