-- ARGV: how many may wait here, whether only to look, how many batches; each: how many events; each as in mailbox.lua
-- Answers for each batch which of its events are new, or how many waited when it was refused, and how many wait now. Who
-- only looks is answered nothing for a batch that would not be refused.
local most, look = tonumber(argument()), flag()
local answers = {}

local function refused(events)
  local brought = {}
  local waiting = redis.call('ZCARD', key('stamps'))
  for _, event in ipairs(events) do
    local fresh = true
    for _, id in ipairs(event.ids) do
      if brought[id] or is_seen(id) then fresh = false end
    end
    for _, id in ipairs(event.ids) do brought[id] = true end
    if fresh then
      if event.refusable and waiting >= most then return waiting end
      waiting = waiting + 1
    end
  end
end

for batch = 1, tonumber(argument()) do
  local events = {}
  for i = 1, tonumber(argument()) do events[i] = read_event() end
  local waiting = refused(events)
  if waiting then
    answers[batch] = waiting
  elseif look then
    answers[batch] = {}
  else
    local fresh = {}
    for i, event in ipairs(events) do fresh[i] = accept(event) and 1 or 0 end
    answers[batch] = fresh
  end
end
settle()
return { latest, answers, redis.call('ZCARD', key('stamps')) }
