-- ARGV: the rank at which to begin, the most events
-- Removes notes from the count of events, where an older release has put them, and makes their conversation ready once
-- they are old. Returns the rank at which to continue (-1: none is left).
local first, most = tonumber(argument()), tonumber(argument())
local seqs = redis.call('ZRANGE', key('stamps'), first, first + most - 1)
local next_rank = first + #seqs
for _, seq in ipairs(seqs) do
  local found = redis.call('HMGET', key('event', seq), 'conversation', 'pointed', 'wakes')
  if found[1] and found[2] == '0' and found[3] == '0' then
    redis.call('ZREM', key('stamps'), seq)
    next_rank = next_rank - 1
    rest(found[1])
  end
end
settle()
return #seqs < most and -1 or next_rank
