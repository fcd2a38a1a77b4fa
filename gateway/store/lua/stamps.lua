-- ARGV: the names of logs
-- Returns the stamp of the first line of each (-1: no lines).
local stamps = {}
for i, name in ipairs(list()) do
  local first = redis.call('LINDEX', key('log', name), 0)
  stamps[i] = first and tonumber(string.match(first, '^%d+')) or -1
end
return stamps
