-- ARGV: the place to begin after, the most dead letters
-- Returns dead letters, the oldest first.
local shown = {}
local after, most = argument(), argument()
for i, dead_id in ipairs(redis.call('ZRANGEBYSCORE', key('dead'), '(' .. after, '+inf', 'LIMIT', 0, most)) do
  local found = redis.call('HMGET', key('letter', dead_id), 'conversation', 'reason', 'stamp', 'held')
  shown[i] = { redis.call('ZSCORE', key('dead'), dead_id), dead_id, unpack(found) }
end
return shown
