-- ARGV: the rank to begin at, how many at most
-- What an older release left: notes among the seqs that count. They count no more, and make their conversation ready
-- once they are old. Answers the rank to go on at; -1: that was all.
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
