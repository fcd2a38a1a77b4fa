-- ARGV: the most timers
-- Returns the due timers, in order (id, due, event), the microseconds to the next timer (-1: none), and the count of
-- pending decisions. Also removes some expired records and counts, not returned by any script.
local most = tonumber(argument())
for _, name in ipairs(redis.call('ZRANGEBYSCORE', key('ends'), '-inf', now, 'LIMIT', 0, most)) do remove_record(name) end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', key('spent_ends'), '-inf', now, 'LIMIT', 0, most)) do forget_spent(name) end
local found = redis.call('ZRANGEBYSCORE', key('timers'), '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
local timers = {}
for i = 1, #found, 2 do
  timers[#timers + 1] = { found[i], found[i + 1], redis.call('HGET', key('timer'), found[i]) or '' }
end
local next_one = redis.call('ZRANGE', key('timers'), #timers, #timers, 'WITHSCORES')
return { timers, next_one[2] and math.max(0, tonumber(next_one[2]) - now) or -1, redis.call('ZCARD', key('points')) }
