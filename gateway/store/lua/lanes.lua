-- Lanes: the choice of a ready lane, the leases, and the state kept between leases.
--
-- lane:<kind>:<lane>  hash: ready (the earliest moment of a lease; absent: no work), due (not ready before, also with
--                     later work), tries, died, pool, rests (only notes wait: ready once old); while held also worker,
--                     fence, until (real time), upto (the last seq of the leased work; out: the first)
-- free:<index>        unheld lanes with work, by ready. An index is a kind, for an outbox with a pool: kind/pool
-- held:<index>        held lanes with work, by until
-- idle:<index>        held lanes without work, by until
-- ways                all indexes with a pool
-- rests               unheld conversations with notes alone, by ready

local function ready_index(kind, state)
  return state.pool ~= '' and kind .. '/' .. state.pool or kind
end

local function read_lane(kind, lane)
  local found = redis.call('HMGET', key('lane', kind .. ':' .. lane),
    'ready', 'due', 'tries', 'died', 'worker', 'fence', 'until', 'upto', 'pool', 'rests')
  local state = {
    ready = tonumber(found[1]), due = tonumber(found[2]) or 0,
    tries = tonumber(found[3]) or 0, died = found[4] == '1',
    worker = found[5], fence = tonumber(found[6]), lapses = tonumber(found[7]), upto = tonumber(found[8]),
    pool = found[9] or '', rests = found[10] == '1',
  }
  state.indexed, state.rested = ready_index(kind, state), state.rests
  return state
end

local function save_lane(kind, lane, state)
  local name, index = key('lane', kind .. ':' .. lane), ready_index(kind, state)
  redis.call('DEL', name)
  for _, set in ipairs({ 'free', 'held', 'idle' }) do redis.call('ZREM', key(set, state.indexed), lane) end
  if state.rested then redis.call('ZREM', key('rests'), lane) end
  local known = state.ready or state.worker or state.tries > 0 or state.died
  if not known and state.due <= now then return end
  redis.call('HSET', name, 'due', state.due, 'tries', state.tries, 'died', state.died and 1 or 0, 'pool', state.pool)
  if state.ready then redis.call('HSET', name, 'ready', state.ready) end
  if state.ready and state.rests then
    redis.call('HSET', name, 'rests', 1)
    if not state.worker then redis.call('ZADD', key('rests'), state.ready, lane) end
  end
  if state.worker then
    redis.call('HSET', name, 'worker', state.worker, 'fence', state.fence, 'until', state.lapses, 'upto', state.upto)
    redis.call('ZADD', key(state.ready and 'held' or 'idle', index), state.lapses, lane)
  elseif state.ready then
    redis.call('ZADD', key('free', index), state.ready, lane)
  elseif not known then
    redis.call('PEXPIRE', name, math.ceil((state.due - now) / 1000))
  end
end

-- Returns true for a kind of lane with a mailbox.
local function is_mailbox(kind)
  return kind == 'turn' or kind == 'memory'
end

local function has_work(kind, lane)
  local work = { turn = 'wakes', memory = 'wakes', action = 'launch', out = 'out' }
  return redis.call('EXISTS', key(work[kind], lane)) == 1
end

-- Returns true if a note waits among the first 100 events of the conversation: an event without a pointer, accepted
-- without `wakes`. A deciding event may become a note when the pointer is dropped.
local function has_notes(conversation)
  local last = 99
  for _, seq in ipairs(redis.call('ZRANGE', key('mail', conversation), 0, last)) do
    local found = redis.call('HMGET', key('event', seq), 'pointed', 'wakes')
    if found[1] == '0' and found[2] == '0' then return true end
  end
  return false
end

-- Makes a conversation with notes alone ready for a turn once the notes are old, unless ready before.
local FOLDED_AFTER = FOLDED_AFTER_SECONDS * 1000000
local function rest(conversation)
  local state = read_lane('turn', conversation)
  if state.ready then return end
  state.ready, state.rests = math.max(tick() + FOLDED_AFTER, state.due), true
  save_lane('turn', conversation, state)
  news[ready_index('turn', state)] = true
end

-- Makes a lane with new work ready. With `collects`, a lane waiting for more work continues to wait.
local function wake(kind, lane, pool, collects)
  local state = read_lane(kind, lane)
  local waits_for_more = state.ready and not state.worker and state.ready > math.max(now, state.due)
  if state.ready and not state.rests and (collects or not waits_for_more) then return end
  state.ready, state.rests = math.max(tick(), state.due), false
  if pool and pool ~= '' then
    state.pool = pool
    redis.call('SADD', key('ways'), ready_index(kind, state))
  end
  save_lane(kind, lane, state)
  news[ready_index(kind, state)] = true
end

-- Removes the due time of a lane. A held lane is not changed: the holder decides on the due time.
local function put_off_no_more(kind, lane)
  local state = read_lane(kind, lane)
  if not state.worker and state.due > 0 then
    state.due = 0
    save_lane(kind, lane, state)
  end
end

-- Makes a lane without work unready. A conversation with notes alone becomes ready once the notes are old.
local function clear_if_idle(kind, lane)
  if has_work(kind, lane) then return end
  local state = read_lane(kind, lane)
  if state.rests or not state.ready then
    if state.rests and not has_notes(lane) then
      state.ready = nil
      save_lane(kind, lane, state)
    end
    return
  end
  state.ready = nil
  if kind == 'turn' and has_notes(lane) then
    state.ready, state.rests = math.max(tick() + FOLDED_AFTER, state.due), true
  end
  save_lane(kind, lane, state)
end

-- Returns true if all waking events of the conversation may wait for more.
local function all_collect(conversation)
  for _, seq in ipairs(redis.call('SMEMBERS', key('wakes', conversation))) do
    if redis.call('HGET', key('event', seq), 'collects') ~= '1' then return false end
  end
  return true
end

-- Returns the lane if still held by this lease. A lapsed lease holds the lane until another worker takes over.
local function hold(kind, lane, fence)
  local state = read_lane(kind, lane)
  if state.worker and state.fence == tonumber(fence) then return state end
end

-- Adds a try to the unconsumed events or parts of an ended lease.
local function count_try(kind, lane, upto)
  if is_mailbox(kind) then
    for _, seq in ipairs(redis.call('ZRANGEBYSCORE', key('mail', lane), '-inf', upto)) do
      redis.call('HINCRBY', key('event', seq), 'tries', 1)
    end
  elseif kind == 'out' then
    for _, part in ipairs(redis.call('ZRANGEBYSCORE', key('out', lane), '-inf', upto)) do
      redis.call('HINCRBY', key('part', part), 'tries', 1)
    end
  end
end

-- Reads a query for lanes: the kinds, each followed by the index; the single wanted lane, or nil for any.
local function read_query()
  return list(), flag() and argument() or nil
end

-- Returns the longest-ready lane of a query: the kind, the name, and the first ready moment.
local function choose(kinds, only)
  local best
  local function consider(kind, lane, ready)
    if ready and ready <= now and (not best or ready < best[3]) then best = { kind, lane, ready } end
  end
  for i = 1, #kinds, 2 do
    local kind, index = kinds[i], kinds[i + 1]
    if only then
      local state = read_lane(kind, only)
      if not state.worker or state.lapses <= real then consider(kind, only, state.ready) end
    else
      local free = redis.call('ZRANGE', key('free', index), 0, 0, 'WITHSCORES')
      if free[1] then consider(kind, free[1], tonumber(free[2])) end
      for _, lane in ipairs(redis.call('ZRANGEBYSCORE', key('held', index), '-inf', real, 'LIMIT', 0, 100)) do
        consider(kind, lane, read_lane(kind, lane).ready)
      end
    end
  end
  return best
end

-- Returns the microseconds until a lane becomes ready by time alone (due time, or lapse of the lease); -1: none will.
local function patience(kinds, only)
  local soonest = -1
  local function consider(wait)
    if wait > 0 and (soonest < 0 or wait < soonest) then soonest = wait end
  end
  for i = 1, #kinds, 2 do
    local kind, index = kinds[i], kinds[i + 1]
    if only then
      local state = read_lane(kind, only)
      if state.ready then consider(state.worker and state.lapses - real or state.ready - now) end
    else
      local due = redis.call('ZRANGEBYSCORE', key('free', index), '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if due[1] then consider(tonumber(due[2]) - now) end
      local lapses =
        redis.call('ZRANGEBYSCORE', key('held', index), '(' .. text(real), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if lapses[1] then consider(tonumber(lapses[2]) - real) end
    end
  end
  return soonest
end
