-- record:<name>  hash: value, version, ends (absent: it does not end). One that has ended keeps its version for an hour
-- names          the names of all records, for `scan`
-- ends           the names of the records that end, by that moment

local VERSION_KEPT = 3600000 -- milliseconds

local function version(name)
  local found = redis.call('HMGET', key('record', name), 'version', 'ends')
  if not found[1] or (found[2] and tonumber(found[2]) <= now) then return 0 end
  return tonumber(found[1])
end

local function show_record(name)
  local found = redis.call('HMGET', key('record', name), 'value', 'version', 'ends')
  if not found[1] or (found[3] and tonumber(found[3]) <= now) then return { false, 0 } end
  return { found[1], tonumber(found[2]) }
end

local function put(name, value, keep)
  local record = key('record', name)
  redis.call('HINCRBY', record, 'version', 1)
  redis.call('HSET', record, 'value', value)
  redis.call('PERSIST', record)
  redis.call('ZADD', key('names'), 0, name)
  if keep == '' then
    redis.call('HDEL', record, 'ends')
    redis.call('ZREM', key('ends'), name)
  else
    local ends = now + tonumber(keep)
    redis.call('HSET', record, 'ends', ends)
    redis.call('ZADD', key('ends'), ends, name)
  end
end

local function remove_record(name)
  local record = key('record', name)
  if redis.call('EXISTS', record) == 0 then return end
  redis.call('HDEL', record, 'value')
  redis.call('HSET', record, 'ends', now)
  redis.call('PEXPIRE', record, VERSION_KEPT)
  redis.call('ZREM', key('names'), name)
  redis.call('ZREM', key('ends'), name)
end

-- spent:<name>   hash: the amounts of a count by field
-- spent_names    the names of all counts
-- spent_ends     the names of all counts, by the moment at which they end

local function show_spent(name)
  local ends = redis.call('ZSCORE', key('spent_ends'), name)
  if not ends or tonumber(ends) <= now then return {} end
  return redis.call('HGETALL', key('spent', name))
end

local function forget_spent(name)
  redis.call('DEL', key('spent', name))
  redis.call('ZREM', key('spent_names'), name)
  redis.call('ZREM', key('spent_ends'), name)
end

local function spend(name, keep, ...)
  local amounts, ends = { ... }, redis.call('ZSCORE', key('spent_ends'), name)
  if ends and tonumber(ends) <= now then forget_spent(name) end
  for i = 1, #amounts, 2 do redis.call('HINCRBY', key('spent', name), amounts[i], amounts[i + 1]) end
  redis.call('ZADD', key('spent_names'), 0, name)
  redis.call('ZADD', key('spent_ends'), now + tonumber(keep), name)
end

-- Returns the number of the line before the first one returned, and the lines of a log after `after`; at most the last
-- `last` of them (-1: all).
local function show_log(name, after, last, first)
  local log = key('log', name)
  if last >= 0 then after = math.max(after, redis.call('LLEN', log) - last) end
  return { after, redis.call('LRANGE', log, after, first and first > 0 and after + first - 1 or -1) }
end
