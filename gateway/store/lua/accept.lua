-- ARGV: how many may wait here, how many in one conversation, whether only to look, how many batches; each: how many
-- events; each as in mailbox.lua
-- Answers for each batch which of its events are new, or, when it was refused, how many waited, or the conversation that
-- too many waited in; and how many wait now. Who only looks is answered nothing for a batch that would not be refused.
local most, most_in_one, look = tonumber(argument()), tonumber(argument()), flag()
local answers = {}

-- How many wait in a conversation, notes left out: those that wake, and those with a pointer that have not woken yet.
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
      if event.refusable and not flooded and waiting >= most_in_one -- fewer are not so many in one
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
