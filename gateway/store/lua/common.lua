-- Every script begins with this. KEYS[1] is the base of all keys of one partition: they share its hash tag, so a
-- script touches one slot of a cluster. Values are opaque bytes: no JSON is read or written here.
--
-- ARGV: the offset of the store's clock, the latest moment the caller has seen and the latest that it can be by now
-- unless this server's clock was set forward (microseconds; 0: unknown), the channel that news goes to; then what the
-- script's own first line says.
-- FORMAT, which stands before all this, is the format of the keys that this release knows. A partition of a newer one is
-- left alone: each script looks, so not even a process that was started before can write there in the old way.
--
-- Numbers stay below 2^53, and Redis writes them out exactly; only `..` would shorten them, hence `text`.

local base = KEYS[1]

local function key(name, id)
  if id then return base .. ':' .. name .. ':' .. id end
  return base .. ':' .. name
end

local function text(number) return string.format('%.0f', number) end

local cursor = 4
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
local real = tonumber(clock[1]) * 1000000 + tonumber(clock[2]) -- what leases run on
local kept = redis.call('MGET', key('clock'), key('format'))
if tonumber(kept[2] or 0) > FORMAT then
  return redis.error_reply('NEWERFORMAT this partition was brought to the format of a newer release')
end
local now, most = real + tonumber(ARGV[1]), tonumber(ARGV[3])
if most > 0 then now = math.min(now, most) end
now = math.max(now, tonumber(ARGV[2]), tonumber(kept[1] or 0))
local latest = now

-- A moment later than every one before it in this partition: it orders events, parts and lanes, and numbers fences.
local function tick()
  latest = latest + 1
  return latest
end

local news, written = {}, {}

-- The last act of a script that writes: the clock never goes back behind what was written, and who waits hears of it,
-- and in which partition. Of logs on a channel of their own: few listen, and every turn writes one.
local function settle()
  redis.call('SET', key('clock'), latest)
  local place = string.match(base, '{(%d%d)%a*}$')
  for topic in pairs(news) do redis.call('PUBLISH', ARGV[4], place .. topic) end
  for log in pairs(written) do redis.call('PUBLISH', ARGV[4] .. ':logs', place .. log) end
end
