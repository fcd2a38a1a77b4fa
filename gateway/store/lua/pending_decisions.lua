-- ARGV: 1 and a conversation, or 0 for all; the least age (microseconds), the most events
local conversation = flag() and argument() or nil
local old_enough, most = now - tonumber(argument()), tonumber(argument())
local PAGE = 100
local name, shown, start = key('points', conversation), {}, 0
repeat
  local seqs = redis.call('ZRANGE', name, start, start + PAGE - 1)
  for _, seq in ipairs(seqs) do
    local event = show_event(seq)
    if #shown < most and tonumber(event[3]) <= old_enough then shown[#shown + 1] = event end
  end
  start = start + PAGE
until #shown >= most or #seqs < PAGE
return shown
