-- ARGV: the count of cells; for each: the name, the cost, and the greatest lead (both in microseconds)
-- Takes the cost of all cells or of none (GCRA): each cell stores the arrival of the next unit at an even rate.
-- Returns the microseconds to wait; 0: taken.
local arrivals, names, wait = {}, {}, 0
for i = 1, tonumber(argument()) do
  local name, cost, period = argument(), tonumber(argument()), tonumber(argument())
  local arrival = arrivals[name] or math.max(now, tonumber(redis.call('GET', key('cell', name))) or 0)
  arrivals[name] = arrival + cost
  names[i] = name
  wait = math.max(wait, arrival + cost - period - now)
end
if wait > 0 then return wait end
for _, name in ipairs(names) do
  redis.call('SET', key('cell', name), arrivals[name], 'PX', math.max(1, math.ceil((arrivals[name] - now) / 1000)))
end
return 0
