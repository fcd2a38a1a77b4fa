-- The beginning of every script. KEYS[1] is the base of all keys of a partition, all with the same hash tag. So a
-- script touches a single slot of a cluster. Values are opaque bytes: no JSON is read or written here.
--
-- ARGV: the offset of the store's clock; the latest moment seen by the caller; the latest possible moment now, unless
-- this server's clock was set forward (all in microseconds; 0: unknown); the channel of the notifications; the latest
-- stamp of a write here by the caller (0: none); then the arguments documented in the script's own first lines.
-- FORM, a line before this file, is the form of all data of this release. Every script refuses a partition of another
-- form, so an already running process cannot write there either.
--
-- Numbers are below 2^53, and Redis writes these exactly. Only `..` would round, so `text` is used.

local base = KEYS[1]

local function key(name, id)
  if id then return base .. ':' .. name .. ':' .. id end
  return base .. ':' .. name
end

local function text(number) return string.format('%.0f', number) end

local cursor = 5
local function argument()
  cursor = cursor + 1
  return ARGV[cursor]
end
local function flag() return argument() == '1' end
local function list()
  local found = {}
  for i = 1, tonumber(argument()) do found[i] = argument() end
  return found
end

local clock = redis.call('TIME')
local real = tonumber(clock[1]) * 1000000 + tonumber(clock[2]) -- the clock of leases
local kept = redis.call('MGET', key('clock'), key('format'))
if kept[2] and tonumber(kept[2]) ~= FORM then return redis.error_reply('OTHERFORM ' .. kept[2]) end
local now, most = real + tonumber(ARGV[1]), tonumber(ARGV[3])
if most > 0 then now = math.min(now, most) end
now = math.max(now, tonumber(ARGV[2]), tonumber(kept[1] or 0))
local latest = now

-- Returns a moment later than all before in this partition: the order of events, parts and lanes, and the fence.
local function tick()
  latest = latest + 1
  return latest
end

local news, written = {}, {}

-- Ends a writing script: stores the form, and the clock, so the clock never goes back behind a write. Publishes the
-- partition and the topics of the notifications. Logs have a separate channel, because few processes listen and every
-- turn writes a log.
local function settle()
  -- A clock older than an acknowledged write shows a return of the data to an older copy.
  if tonumber(kept[1] or 0) < tonumber(ARGV[5]) then redis.call('SET', key('behind'), ARGV[5]) end
  redis.call('SET', key('clock'), latest)
  if not kept[2] then redis.call('SET', key('format'), FORM) end
  local place = string.match(base, '{(%d%d)%a*}$')
  for topic in pairs(news) do redis.call('PUBLISH', ARGV[4], place .. topic) end
  for log in pairs(written) do redis.call('PUBLISH', ARGV[4] .. ':logs', place .. log) end
end
