-- ARGV: the first and the last name, as ZRANGEBYLEX takes them
local shown = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', key('names'), argument(), argument())) do
  local record = show_record(name)
  if record[2] > 0 then shown[#shown + 1] = { name, record[1], record[2] } end
end
return shown
