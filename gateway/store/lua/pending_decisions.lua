-- ARGV: 1 and a conversation, or 0 for all; the least age (microseconds), the most events, the newest form that is
-- known
local conversation = flag() and argument() or nil
local old_enough, most, knows = now - tonumber(argument()), tonumber(argument()), tonumber(argument())
local PAGE = 100
local shown = {}
for needs = 1, knows do
  local name, found, start = key(points_of(needs), conversation), 0, 0
  repeat
    local seqs = redis.call('ZRANGE', name, start, start + PAGE - 1)
    for _, seq in ipairs(seqs) do
      local event = show_event(seq)
      if found < most and tonumber(event[3]) <= old_enough then
        found = found + 1
        shown[#shown + 1] = event
      end
    end
    start = start + PAGE
  until found >= most or #seqs < PAGE
end
return shown
