-- Mailboxes and outboxes.
--
-- seen:<event id>        the moment until which the id is remembered
-- event:<seq>            hash: conversation, kind (of the lane), stamp, body, pointed, wakes, collects, tries, about
--                        (the subject of a note)
-- mail:<conversation>    the seqs of all events, in order; wakes:<conversation>: of the waking events without a pointer
-- points, points:<c>     the seqs of events with a pointer: of all conversations, and of a single conversation
-- stamps                 the seqs of all events by stamp, without notes (neither waking nor with a pointer)
-- about:<conversation>   hash: subject of a note -> seq
-- part:<part id>         hash: conversation, seq, stamp, body, pool, tries
-- out:<conversation>     the ids of the parts, in order; parts: the count of all parts

-- ARGV: conversation, stamp (or ''), body, marks, subject of a note (or ''), keep (microseconds), ids
local function read_event()
  local event = { conversation = argument(), stamp = tonumber(argument()), body = argument() }
  local marks = tonumber(argument())
  event.decides, event.wakes = bit.band(marks, 1) > 0, bit.band(marks, 2) > 0
  event.collects, event.refusable = bit.band(marks, 4) > 0, bit.band(marks, 8) > 0
  event.kind = bit.band(marks, 16) > 0 and 'memory' or 'turn'
  event.is_note, event.about = not event.decides and not event.wakes, argument()
  event.keep, event.ids = tonumber(argument()), list()
  return event
end

local function is_seen(id)
  local until_when = tonumber(redis.call('GET', key('seen', id)))
  return until_when and until_when > now
end

local function know(id, keep)
  redis.call('SET', key('seen', id), now + keep, 'PX', math.max(1, math.ceil(keep / 1000)))
end

-- Remembers the ids of an event. Returns true if none was known. A twin's ids are remembered too: some may be new.
local function remember(event)
  local fresh = true
  for _, id in ipairs(event.ids) do
    if is_seen(id) then
      fresh = false
    else
      know(id, event.keep)
    end
  end
  return fresh
end

local function make_ready(kind, conversation, seq, collects)
  redis.call('SADD', key('wakes', conversation), seq)
  wake(kind, conversation, nil, collects)
end

local function take_pointer(conversation, seq)
  redis.call('ZREM', key('points'), seq)
  redis.call('ZREM', key('points', conversation), seq)
end

local function remove_event(conversation, seq)
  local found = redis.call('HMGET', key('event', seq), 'pointed', 'about', 'kind')
  if found[1] == '1' then take_pointer(conversation, seq) end
  if found[2] and redis.call('HGET', key('about', conversation), found[2]) == seq then
    redis.call('HDEL', key('about', conversation), found[2])
  end
  redis.call('DEL', key('event', seq))
  redis.call('ZREM', key('mail', conversation), seq)
  redis.call('ZREM', key('stamps'), seq)
  redis.call('SREM', key('wakes', conversation), seq)
  clear_if_idle(found[3] or 'turn', conversation)
end

-- Replaces the earlier note on the same subject, unless a lease has the earlier note.
local function replace_note(conversation, about, seq)
  local before = redis.call('HGET', key('about', conversation), about)
  local state = read_lane('turn', conversation)
  if before and not (state.worker and tonumber(before) <= state.upto) then remove_event(conversation, before) end
  redis.call('HSET', key('about', conversation), about, seq)
end

local function deliver(event)
  local seq = text(tick())
  local stamp = event.stamp or now
  redis.call('HSET', key('event', seq), 'conversation', event.conversation, 'kind', event.kind, 'stamp', stamp,
    'body', event.body, 'pointed', event.decides and 1 or 0, 'wakes', event.wakes and 1 or 0,
    'collects', event.collects and 1 or 0, 'tries', 0)
  if event.is_note and event.about ~= '' then
    redis.call('HSET', key('event', seq), 'about', event.about)
    replace_note(event.conversation, event.about, seq)
  end
  redis.call('ZADD', key('mail', event.conversation), seq, seq)
  if not event.is_note then redis.call('ZADD', key('stamps'), stamp, seq) end
  if event.decides then
    redis.call('ZADD', key('points'), seq, seq)
    redis.call('ZADD', key('points', event.conversation), seq, seq)
  elseif event.wakes then
    make_ready(event.kind, event.conversation, seq, event.collects)
  else
    rest(event.conversation)
  end
end

local function accept(event)
  local fresh = remember(event)
  if fresh then deliver(event) end
  return fresh
end

local function show_event(seq)
  local found = redis.call('HMGET', key('event', seq), 'conversation', 'stamp', 'body', 'pointed', 'collects', 'kind',
    'tries')
  return { seq, unpack(found) }
end

-- Appends a part to the outbox. An already queued part is skipped.
local function queue(part_id, conversation, body, pool)
  local name = key('part', part_id)
  if redis.call('EXISTS', name) == 1 then return end
  local seq = tick()
  redis.call('HSET', name, 'conversation', conversation, 'seq', seq, 'stamp', now, 'body', body, 'pool', pool, 'tries', 0)
  redis.call('ZADD', key('out', conversation), seq, part_id)
  redis.call('INCR', key('parts'))
  wake('out', conversation, pool)
end

local function show_parts(conversation, last)
  local shown = {}
  for i, part_id in ipairs(redis.call('ZRANGE', key('out', conversation), 0, last)) do
    local found = redis.call('HMGET', key('part', part_id), 'conversation', 'body', 'pool', 'stamp', 'tries')
    shown[i] = { part_id, unpack(found) }
  end
  return shown
end
