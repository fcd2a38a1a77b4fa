-- ARGV: the first and the last name, in the form of ZRANGEBYLEX, the most counts
-- Returns the counts (name, fields and amounts), and the last examined name ('': none is left).
local first, last, most = argument(), argument(), tonumber(argument())
local shown = {}
local names = redis.call('ZRANGEBYLEX', key('spent_names'), first, last, 'LIMIT', 0, most)
for i, name in ipairs(names) do shown[i] = { name, show_spent(name) } end
return { shown, #names < most and '' or names[#names] }
