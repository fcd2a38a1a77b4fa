-- ARGV: the most timers to examine for kinds
-- Returns all counts of a partition, read at the same moment. The oldest stamp is -1 if no event waits. The last item
-- has the kinds of timers, each followed by the count.
local ready, leased, parked = 0, 0, 0
local all = redis.call('SMEMBERS', key('ways'))
for _, kind in ipairs({ 'turn', 'memory', 'action', 'out' }) do all[#all + 1] = kind end
for _, index in ipairs(all) do
  local function count(set, from, to) return redis.call('ZCOUNT', key(set, index), from, to) end
  ready = ready + count('free', '-inf', now) + count('held', '-inf', real)
  leased = leased + count('held', '(' .. text(real), '+inf') + count('idle', '(' .. text(real), '+inf')
  parked = parked + count('free', '(' .. text(now), '+inf')
end
parked = parked - redis.call('ZCOUNT', key('rests'), '(' .. text(now), '+inf') -- lanes with notes alone
local kinds, counted = {}, {}
for _, timer_id in ipairs(redis.call('ZRANGE', key('timers'), 0, tonumber(argument()) - 1)) do
  local kind = timer_id:match('^([^/]*)/')
  if kind then kinds[kind] = (kinds[kind] or 0) + 1 end
end
for kind, count in pairs(kinds) do
  counted[#counted + 1] = kind
  counted[#counted + 1] = count
end
local oldest = redis.call('ZRANGE', key('stamps'), 0, 0, 'WITHSCORES')
return {
  redis.call('ZCARD', key('stamps')), redis.call('ZCARD', key('points')), ready, leased, parked,
  tonumber(redis.call('GET', key('parts')) or 0), redis.call('ZCARD', key('timers')), redis.call('ZCARD', key('dead')),
  now, tonumber(oldest[2] or -1), counted,
}
