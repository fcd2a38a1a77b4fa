-- ARGV: worker, how long (microseconds); what is wanted, as in lanes.lua
-- Answers what peek.lua would afterwards, and the lease, if there was one to be had.
local EVENTS, PARTS = 100, 20
local worker, long = argument(), tonumber(argument())
local kinds, only, knows = read_wanted()
local best = choose(kinds, only, knows)
if not best then return { -1, patience(kinds, only), false } end
local kind, lane = best[1], best[2]
local state = read_lane(kind, lane)
if state.worker then
  state.tries = state.tries + 1
  state.died = true
  blame(kind, lane, state.upto)
end
local events, parts, steps = {}, {}, {}
if kind == 'turn' then
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
state.worker, state.fence, state.lapses, state.needs = worker, tick(), real + long, 1
save_lane(kind, lane, state)
settle()
best = choose(kinds, only, knows)
return {
  best and best[3] or -1, patience(kinds, only),
  { latest, kind, lane, state.fence, state.tries, state.died and 1 or 0, events, parts, steps },
}
