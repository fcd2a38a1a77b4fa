-- Lanes: what can be leased, by whom it is held, and what is remembered from one lease to the next.
--
-- lane:<kind>:<lane>  hash: ready (since when, or from when on, it may be leased; absent: no work), due (not before,
--                     also for work that comes later), tries, died; while held worker, fence, until (real time), upto
--                     (the last seq that was handed out; out: the first)
-- free:<kind>         lanes with work that nobody holds, by ready
-- held:<kind>         lanes with work that somebody holds, by until
-- idle:<kind>         lanes without work that somebody holds, by until

local function read_lane(kind, lane)
  local found = redis.call('HMGET', key('lane', kind .. ':' .. lane),
    'ready', 'due', 'tries', 'died', 'worker', 'fence', 'until', 'upto')
  return {
    ready = tonumber(found[1]), due = tonumber(found[2]) or 0,
    tries = tonumber(found[3]) or 0, died = found[4] == '1',
    worker = found[5], fence = tonumber(found[6]), lapses = tonumber(found[7]), upto = tonumber(found[8]),
  }
end

local function save_lane(kind, lane, state)
  local name = key('lane', kind .. ':' .. lane)
  redis.call('DEL', name)
  for _, index in ipairs({ 'free', 'held', 'idle' }) do redis.call('ZREM', key(index, kind), lane) end
  local known = state.ready or state.worker or state.tries > 0 or state.died
  if not known and state.due <= now then return end
  redis.call('HSET', name, 'due', state.due, 'tries', state.tries, 'died', state.died and 1 or 0)
  if state.ready then redis.call('HSET', name, 'ready', state.ready) end
  if state.worker then
    redis.call('HSET', name, 'worker', state.worker, 'fence', state.fence, 'until', state.lapses, 'upto', state.upto)
    redis.call('ZADD', key(state.ready and 'held' or 'idle', kind), state.lapses, lane)
  elseif state.ready then
    redis.call('ZADD', key('free', kind), state.ready, lane)
  elseif not known then
    redis.call('PEXPIRE', name, math.ceil((state.due - now) / 1000))
  end
end

local function has_work(kind, lane)
  local work = { turn = 'wakes', action = 'launch', out = 'out' }
  return redis.call('EXISTS', key(work[kind], lane)) == 1
end

-- The lane has work now.
local function wake(kind, lane)
  local state = read_lane(kind, lane)
  if state.ready then return end
  state.ready = math.max(tick(), state.due)
  save_lane(kind, lane, state)
  news[kind] = true
end

-- Work of the lane is gone; perhaps it was the last.
local function spend(kind, lane)
  if has_work(kind, lane) then return end
  local state = read_lane(kind, lane)
  if state.ready then
    state.ready = nil
    save_lane(kind, lane, state)
  end
end

-- The lane, if it is still this lease's; a lapsed one is, until somebody takes the lane.
local function hold(kind, lane, fence)
  local state = read_lane(kind, lane)
  if state.worker and state.fence == tonumber(fence) then return state end
end

-- One more try for what a lease held that ended without dealing with it.
local function blame(kind, lane, upto)
  if kind == 'turn' then
    for _, seq in ipairs(redis.call('ZRANGEBYSCORE', key('mail', lane), '-inf', upto)) do
      redis.call('HINCRBY', key('event', seq), 'tries', 1)
    end
  elseif kind == 'out' then
    for _, part in ipairs(redis.call('ZRANGEBYSCORE', key('out', lane), '-inf', upto)) do
      redis.call('HINCRBY', key('part', part), 'tries', 1)
    end
  end
end

-- The lane that has been ready longest, of these kinds: its kind, name and since when.
local function choose(kinds, only)
  local best
  local function consider(kind, lane, ready)
    if ready and ready <= now and (not best or ready < best[3]) then best = { kind, lane, ready } end
  end
  for _, kind in ipairs(kinds) do
    if only then
      local state = read_lane(kind, only)
      if not state.worker or state.lapses <= real then consider(kind, only, state.ready) end
    else
      local free = redis.call('ZRANGE', key('free', kind), 0, 0, 'WITHSCORES')
      if free[1] then consider(kind, free[1], tonumber(free[2])) end
      for _, lane in ipairs(redis.call('ZRANGEBYSCORE', key('held', kind), '-inf', real, 'LIMIT', 0, 100)) do
        consider(kind, lane, read_lane(kind, lane).ready)
      end
    end
  end
  return best
end

-- Microseconds until a lane becomes ready by time alone (it falls due, or its lease lapses); -1: none will.
local function patience(kinds)
  local soonest = -1
  local function consider(wait)
    if soonest < 0 or wait < soonest then soonest = math.max(wait, 0) end
  end
  for _, kind in ipairs(kinds) do
    local due = redis.call('ZRANGEBYSCORE', key('free', kind), '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if due[1] then consider(tonumber(due[2]) - now) end
    local lapses =
      redis.call('ZRANGEBYSCORE', key('held', kind), '(' .. text(real), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if lapses[1] then consider(tonumber(lapses[2]) - real) end
  end
  return soonest
end
