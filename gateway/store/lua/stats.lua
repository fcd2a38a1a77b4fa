-- Returns all counts of one partition, read at one moment. The oldest stamp is -1 if no event waits.
local ready, leased, parked = 0, 0, 0
local all = redis.call('SMEMBERS', key('ways'))
for _, kind in ipairs({ 'turn', 'action', 'out' }) do all[#all + 1] = kind end
for _, index in ipairs(all) do
  local function count(set, from, to) return redis.call('ZCOUNT', key(set, index), from, to) end
  if index:match('^%d+%+') then -- left to a newer release
    parked = parked + count('free', '-inf', '+inf')
  else
    ready = ready + count('free', '-inf', now) + count('held', '-inf', real)
    leased = leased + count('held', '(' .. text(real), '+inf') + count('idle', '(' .. text(real), '+inf')
    parked = parked + count('free', '(' .. text(now), '+inf')
  end
end
parked = parked - redis.call('ZCOUNT', key('rests'), '(' .. text(now), '+inf') -- lanes with notes alone
local oldest = redis.call('ZRANGE', key('stamps'), 0, 0, 'WITHSCORES')
return {
  redis.call('ZCARD', key('stamps')), redis.call('ZCARD', key('points')), ready, leased, parked,
  tonumber(redis.call('GET', key('parts')) or 0), redis.call('ZCARD', key('timers')), redis.call('ZCARD', key('dead')),
  now, tonumber(oldest[2] or -1),
}
