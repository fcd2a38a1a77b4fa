-- ARGV: lists: lanes; the names of records, of logs, of counts; ids of timers, of dead letters; the other keys to
-- delete, each without the base
-- Removes all of these, or none while a lane is leased. Returns the leased lane, or '' and the counts of removed items.
local lanes, records, logs, counts, timers, letters, others = list(), list(), list(), list(), list(), list(), list()
local KINDS = { 'turn', 'memory', 'out', 'action' }
for _, lane in ipairs(lanes) do
  for _, kind in ipairs(KINDS) do
    local state = read_lane(kind, lane)
    if state.worker and state.lapses > real then return { lane } end
  end
end

local gone = { records = 0, lines = 0, events = 0, parts = 0, timers = 0, letters = 0, counts = 0 }
for _, lane in ipairs(lanes) do
  for _, seq in ipairs(redis.call('ZRANGE', key('mail', lane), 0, -1)) do
    remove_event(lane, seq)
    gone.events = gone.events + 1
  end
  for _, part in ipairs(redis.call('ZRANGE', key('out', lane), 0, -1)) do
    redis.call('DEL', key('part', part))
    redis.call('DECR', key('parts'))
    gone.parts = gone.parts + 1
  end
  redis.call('DEL', key('out', lane), key('steps', lane), key('signals', lane), key('launch', lane))
  redis.call('DEL', key('mail', lane), key('wakes', lane), key('points', lane), key('about', lane))
  for _, kind in ipairs(KINDS) do
    local state = read_lane(kind, lane)
    state.ready, state.worker, state.tries, state.died, state.due = nil, nil, 0, false, 0
    save_lane(kind, lane, state)
  end
end
for _, name in ipairs(records) do
  if show_record(name)[2] > 0 then gone.records = gone.records + 1 end
  redis.call('DEL', key('record', name))
  redis.call('ZREM', key('names'), name)
  redis.call('ZREM', key('ends'), name)
end
for _, name in ipairs(logs) do
  gone.lines = gone.lines + redis.call('LLEN', key('log', name))
  cut(name, '', '0')
end
for _, name in ipairs(counts) do
  gone.counts = gone.counts + redis.call('EXISTS', key('spent', name))
  forget_spent(name)
end
for _, timer_id in ipairs(timers) do
  gone.timers = gone.timers + redis.call('ZREM', key('timers'), timer_id)
  redis.call('HDEL', key('timer'), timer_id)
end
for _, dead_id in ipairs(letters) do
  gone.letters = gone.letters + redis.call('ZREM', key('dead'), dead_id)
  redis.call('DEL', key('letter', dead_id))
end
for _, other in ipairs(others) do redis.call('DEL', base .. ':' .. other) end
settle()
return { '', gone.records, gone.lines, gone.events, gone.parts, gone.timers, gone.letters, gone.counts }
