-- ARGV: the place to begin after, the most dead letters to look at, a text within the reason (or '')
-- Deletes dead letters. Returns the number, and the place to continue after (-1: none is left).
local after, most, reason = argument(), tonumber(argument()), argument()
local dropped, last = 0, '-1'
local found = redis.call('ZRANGEBYSCORE', key('dead'), '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #found, 2 do
  local said = redis.call('HGET', key('letter', found[i]), 'reason') or ''
  if reason == '' or string.find(said, reason, 1, true) then
    redis.call('DEL', key('letter', found[i]))
    redis.call('ZREM', key('dead'), found[i])
    dropped = dropped + 1
  end
  last = found[i + 1]
end
settle()
return { dropped, #found < 2 * most and '-1' or last }
