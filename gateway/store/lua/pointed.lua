-- ARGV: one conversation only: whether, and which; how old at least (microseconds), how many at most
local name = flag() and key('points', argument()) or key('points')
local old_enough, most = now - tonumber(argument()), tonumber(argument())
local PAGE = 100
local shown, start = {}, 0
repeat
  local seqs = redis.call('ZRANGE', name, start, start + PAGE - 1)
  for _, seq in ipairs(seqs) do
    local event = show_event(seq)
    if #shown < most and tonumber(event[3]) <= old_enough then shown[#shown + 1] = event end
  end
  start = start + PAGE
until #shown >= most or #seqs < PAGE
return shown
