-- ARGV: the count of timers; for each: id, due, content; 1 for an event of this partition, and then the event as in
-- mailbox.lua
-- Removes each timer unchanged since the reading, and accepts the event if of this partition.
for _ = 1, tonumber(argument()) do
  local timer_id, due, held = argument(), tonumber(argument()), argument()
  local event = flag() and read_event()
  local same = tonumber(redis.call('ZSCORE', key('timers'), timer_id)) == due
    and (redis.call('HGET', key('timer'), timer_id) or '') == held
  if same then
    redis.call('ZREM', key('timers'), timer_id)
    redis.call('HDEL', key('timer'), timer_id)
    if event then accept(event) end
  end
end
settle()
