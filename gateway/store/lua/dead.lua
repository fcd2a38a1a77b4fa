-- All dead letters, oldest first.
local shown = {}
for i, dead_id in ipairs(redis.call('ZRANGE', key('dead'), 0, -1)) do
  local found = redis.call('HMGET', key('letter', dead_id), 'conversation', 'reason', 'stamp', 'held')
  shown[i] = { redis.call('ZSCORE', key('dead'), dead_id), dead_id, unpack(found) }
end
return shown
