-- ARGV: how many timers; each: id, due, what it holds; whether its event goes to this partition, and then the event as in
-- mailbox.lua
-- Ends each timer that is still as it was read, and accepts its event if it is for here.
for _ = 1, tonumber(argument()) do
  local timer_id, due, held = argument(), tonumber(argument()), argument()
  local event = flag() and read_event()
  local same = tonumber(redis.call('ZSCORE', key('timers'), timer_id)) == due
    and redis.call('HGET', key('timer'), timer_id) == held
  if same then
    redis.call('ZREM', key('timers'), timer_id)
    redis.call('HDEL', key('timer'), timer_id)
    if event then accept(event) end
  end
end
settle()
