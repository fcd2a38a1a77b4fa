-- ARGV: the limit of waiting events here, the limit in a conversation, 1 to only look, the count of batches; for each
-- batch: the count of events, and each event as in mailbox.lua
-- Returns the latest stamp, a result for each batch, and the count of waiting events. The result of a stored batch has
-- 1 for a new event and 0 for a twin; of a refused batch, the count of waiting events, or the overfull conversation; of
-- an acceptable batch after a mere look, no entries.
local most, most_in_one, look = tonumber(argument()), tonumber(argument()), flag()
local answers = {}

-- Returns the count of events in a conversation, without notes: waking events, and events with a pointer.
local function counted(conversation)
  return redis.call('SCARD', key('wakes', conversation)) + redis.call('ZCARD', key('points', conversation))
end

local function refused(events)
  local brought, before = {}, {}
  local waiting = redis.call('ZCARD', key('stamps'))
  local flooded
  for _, event in ipairs(events) do
    local fresh = true
    for _, id in ipairs(event.ids) do
      if brought[id] or is_seen(id) then fresh = false end
    end
    for _, id in ipairs(event.ids) do brought[id] = true end
    if fresh then
      local conversation = event.conversation
      local earlier = before[conversation] or 0
      if event.refusable and waiting >= most then return waiting end
      if event.refusable and not flooded and waiting >= most_in_one -- with fewer in all, no conversation is full
        and counted(conversation) + earlier >= most_in_one then
        flooded = conversation
      end
      if not event.is_note then
        before[conversation] = earlier + 1
        waiting = waiting + 1
      end
    end
  end
  return flooded
end

for batch = 1, tonumber(argument()) do
  local events = {}
  for i = 1, tonumber(argument()) do events[i] = read_event() end
  local why = refused(events)
  if why then
    answers[batch] = why
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
