-- ARGV: the operations of a transaction; for each: the name, the arguments. Redis has no rollback, so all are checked
-- before the first change.
local operations = {}
while cursor < #ARGV do
  local name = argument()
  if name == 'accept' then
    operations[#operations + 1] = { name, read_event() }
  else
    operations[#operations + 1] = { name, unpack(list()) }
  end
end

local gone, decided = {}, {}
local function waits(conversation, seq)
  if gone[seq] or redis.call('HGET', key('event', seq), 'conversation') ~= conversation then
    return { 'conflict', 'event ' .. seq .. ' of ' .. conversation .. ' waits no longer' }
  end
end

local function has_pointer(conversation, seq)
  if decided[seq] or waits(conversation, seq) or redis.call('HGET', key('event', seq), 'pointed') ~= '1' then
    return { 'conflict', 'event ' .. seq .. ' of ' .. conversation .. ' has no pointer' }
  end
  decided[seq] = true
end

local checks = {
  hold = function(kind, lane, fence)
    if not hold(kind, lane, fence) then return { 'fenced' } end
  end,
  not_after = function(moment)
    if now > tonumber(moment) then return { 'late', now } end
  end,
  expect = function(name, expected)
    local found = version(name)
    if found ~= tonumber(expected) then
      return { 'conflict', 'record ' .. name .. ' has version ' .. text(found) .. ', not ' .. expected }
    end
  end,
  consume = function(conversation, seq)
    local answer = waits(conversation, seq)
    gone[seq] = true
    return answer
  end,
  drop_pointer = function(conversation, seq) return has_pointer(conversation, seq) end,
  replace = function(conversation, seq) return waits(conversation, seq) end,
}

local shown = false
local changes = {
  put = put,
  delete = remove_record,
  cut = cut,
  rewrite = rewrite_line,
  append = function(log, value)
    append(log, text(now) .. ' ' .. value)
    written[key('log', log)] = true
  end,
  consume = remove_event,
  drop_pointer = function(conversation, seq)
    take_pointer(conversation, seq)
    redis.call('HSET', key('event', seq), 'pointed', 0)
    if redis.call('HGET', key('event', seq), 'wakes') == '1' then
      make_ready('turn', conversation, seq)
    else
      redis.call('ZREM', key('stamps'), seq)
      rest(conversation)
    end
  end,
  replace = function(_, seq, body) redis.call('HSET', key('event', seq), 'body', body) end,
  accept = accept,
  part = queue,
  sent = function(part_id)
    local conversation = redis.call('HGET', key('part', part_id), 'conversation')
    if not conversation then return end
    redis.call('DEL', key('part', part_id))
    redis.call('ZREM', key('out', conversation), part_id)
    redis.call('DECR', key('parts'))
    clear_if_idle('out', conversation)
  end,
  launch = function(action_id)
    redis.call('SET', key('launch', action_id), tick())
    put_off_no_more('action', action_id)
    wake('action', action_id)
  end,
  timer = function(timer_id, due, incoming)
    redis.call('ZADD', key('timers'), due, timer_id)
    redis.call('HSET', key('timer'), timer_id, incoming)
  end,
  cancel = function(timer_id)
    redis.call('ZREM', key('timers'), timer_id)
    redis.call('HDEL', key('timer'), timer_id)
  end,
  signal = function(conversation, value)
    if read_lane('turn', conversation).worker then redis.call('RPUSH', key('signals', conversation), value) end
  end,
  spend = spend,
  dead = function(dead_id, conversation, reason, held)
    redis.call('ZADD', key('dead'), tick(), dead_id)
    redis.call('HSET', key('letter', dead_id), 'conversation', conversation, 'reason', reason, 'stamp', now, 'held', held)
  end,
  chain = function(kind, lane, worker, long, ...)
    local state = read_lane(kind, lane)
    local free = not state.worker or state.lapses <= real
    if not (free and state.ready and state.ready <= latest) then return end
    shown = take_lane(kind, lane, worker, tonumber(long), ...)
    local others = false
    for _, operation in ipairs(operations) do
      others = others or operation[1] == 'part' and operation[3] ~= lane
    end
    if kind == 'out' and not others then news[ready_index(kind, state)] = nil end -- no other worker can lease this
  end,
  step = function(conversation, value) redis.call('RPUSH', key('steps', conversation), value) end,
  finish = function(kind, lane, outcome, due, collect_until)
    local state = read_lane(kind, lane)
    local done = outcome == 'done'
    if not done or kind == 'out' then count_try(kind, lane, state.upto) end
    if kind == 'turn' then redis.call('DEL', key('signals', lane)) end
    if kind == 'turn' and done then redis.call('DEL', key('steps', lane)) end
    if kind == 'action' and done and tonumber(redis.call('GET', key('launch', lane)) or 0) <= state.upto then
      redis.call('DEL', key('launch', lane))
    end
    state.due = tonumber(due) or 0
    state.ready, state.rests = nil, false
    if has_work(kind, lane) then
      state.ready = math.max(tick(), state.due)
      if collect_until ~= '' and all_collect(lane) then
        state.ready = math.max(state.ready, tonumber(collect_until))
      end
      news[ready_index(kind, state)] = true
    elseif kind == 'turn' and has_notes(lane) then
      state.ready, state.rests = math.max(tick() + FOLDED_AFTER, state.due), true
      news[ready_index(kind, state)] = true
    end
    state.tries = done and 0 or state.tries + 1
    state.died = false
    state.worker = nil
    save_lane(kind, lane, state)
  end,
}

for _, operation in ipairs(operations) do
  local check = checks[operation[1]]
  local answer = check and check(unpack(operation, 2))
  if answer then return answer end
end
for _, operation in ipairs(operations) do
  local change = changes[operation[1]]
  if change then change(unpack(operation, 2)) end
end
settle()
return { 'done', now, latest, shown }
