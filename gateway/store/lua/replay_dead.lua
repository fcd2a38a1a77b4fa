-- ARGV: the id of a dead letter; the content (or '' for any); the item to store: 'event' with an event as in
-- mailbox.lua, 'part' with part id, conversation, body and pool, or 'nothing'
-- Removes the dead letter. Returns 1 if the letter was there. The event is stored although the ids are remembered, and
-- the ids are remembered for the full time again.
local dead_id, held = argument(), argument()
local found = redis.call('HGET', key('letter', dead_id), 'held')
if not found or (held ~= '' and found ~= held) then return 0 end
redis.call('DEL', key('letter', dead_id))
redis.call('ZREM', key('dead'), dead_id)
local becomes = argument()
if becomes == 'event' then
  local event = read_event()
  for _, id in ipairs(event.ids) do know(id, event.keep) end
  deliver(event)
elseif becomes == 'part' then
  queue(argument(), argument(), argument(), argument())
end
settle()
return 1
