-- ARGV: the first and the last name, in the form of ZRANGEBYLEX, the most records
-- Returns the records, and the last examined name ('': none is left).
local first, last, most = argument(), argument(), tonumber(argument())
local shown = {}
local names = redis.call('ZRANGEBYLEX', key('names'), first, last, 'LIMIT', 0, most)
for _, name in ipairs(names) do
  local record = show_record(name)
  if record[2] > 0 then shown[#shown + 1] = { name, record[1], record[2] } end
end
return { shown, #names < most and '' or names[#names] }
