-- Takes a lane for a worker, for `long` microseconds. Returns the work, and the prefetched records and last log lines,
-- each from a name ending with the lane.
local EVENTS, PARTS = 100, 20

local function take_lane(kind, lane, worker, long, log, last, ...)
  local state = read_lane(kind, lane)
  if state.worker then
    state.tries = state.tries + 1
    state.died = true
    count_try(kind, lane, state.upto)
  end
  local events, parts, steps = {}, {}, {}
  if is_mailbox(kind) then
    redis.call('DEL', key('signals', lane))
    for i, seq in ipairs(redis.call('ZRANGE', key('mail', lane), 0, EVENTS - 1)) do
      events[i] = show_event(seq)
      state.upto = seq
    end
    steps = redis.call('LRANGE', key('steps', lane), 0, -1)
  elseif kind == 'out' then
    parts = show_parts(lane, PARTS - 1)
    state.upto = redis.call('HGET', key('part', parts[1][1]), 'seq')
  else
    state.upto = redis.call('GET', key('launch', lane))
  end
  state.worker, state.fence, state.lapses = worker, tick(), real + long
  save_lane(kind, lane, state)
  local records = {}
  for i, name in ipairs({ ... }) do records[i] = show_record(name .. '/' .. lane) end
  local lines = log ~= '' and show_log(log .. '/' .. lane, 0, tonumber(last))[2] or {}
  lines = table.concat(lines, '\n') -- as a single text: parsing sixty answers takes as long as the rest of the lease
  return {
    latest, kind, lane, state.fence, state.tries, state.died and 1 or 0, events, parts, steps, now, records, lines,
  }
end
