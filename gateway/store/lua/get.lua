-- ARGV: the names of records
local shown = {}
for i, name in ipairs(list()) do shown[i] = show_record(name) end
return { now, shown }
