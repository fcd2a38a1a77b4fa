-- ARGV: the id of a dead letter, what it holds (or '' for whatever), what becomes of it: 'event' with an event as in
-- mailbox.lua, 'part' with part id, conversation, body and pool, or 'nothing'
-- Answers whether it was there. A replayed event is no twin, though its ids are known; they are for as long again.
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
