-- record:<name>  hash: value, version, ends (absent: never). An ended record keeps the version for an hour
-- names          the names of all records, for `scan`
-- ends           the names of the records with an end, by the end

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
  if keep == 'same' then return end
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
-- spent_ends     the names of all counts, by the end

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
  for i = 1, #amounts, 2 do
    local held = redis.call('HGET', key('spent', name), amounts[i])
    if held and (#held > 16 or not string.match(held, '^%-?%d+$')) then -- planted: HINCRBY would raise
      redis.call('HDEL', key('spent', name), amounts[i])
    end
    redis.call('HINCRBY', key('spent', name), amounts[i], amounts[i + 1])
  end
  redis.call('ZADD', key('spent_names'), 0, name)
  redis.call('ZADD', key('spent_ends'), now + tonumber(keep), name)
end

-- log:<name>     list: the lines of a log, each as stamp, space, value
-- cuts           hash: the count of the numbers before the first line, of each log with lines and a count above 0
-- emptied        the greatest number of a line in any emptied log

local function numbers_before(name) return tonumber(redis.call('HGET', key('cuts'), name) or 0) end

local function append(name, line)
  if redis.call('RPUSH', key('log', name), line) > 1 then return end
  local emptied = redis.call('GET', key('emptied'))
  if emptied then redis.call('HSET', key('cuts'), name, emptied) end
end

-- Removes the lines up to the number `upto` ('': all), but not the last `keep`.
local function cut(name, upto, keep)
  local log, before = key('log', name), numbers_before(name)
  local there = redis.call('LLEN', log)
  local gone = there - tonumber(keep)
  if upto ~= '' then gone = math.min(gone, tonumber(upto) - before) end
  if gone <= 0 then return end
  if gone < there then
    redis.call('LTRIM', log, gone, -1)
    redis.call('HSET', key('cuts'), name, text(before + gone))
  else
    redis.call('UNLINK', log)
    redis.call('HDEL', key('cuts'), name)
    redis.call('SET', key('emptied'), text(math.max(before + there, tonumber(redis.call('GET', key('emptied')) or 0))))
  end
end

-- Replaces the value of the line with the number `seq`, and keeps the stamp.
local function rewrite_line(name, seq, value)
  local place = tonumber(seq) - numbers_before(name) - 1
  local line = place >= 0 and redis.call('LINDEX', key('log', name), place)
  if line then redis.call('LSET', key('log', name), place, line:match('^%d+') .. ' ' .. value) end
end

-- Returns the number of the line before the first returned line, and the lines of a log after `after`: at most the last
-- `last` lines (-1: all), and at most `first` from there (0 or less: all).
local function show_log(name, after, last, first)
  local log, before = key('log', name), numbers_before(name)
  after = math.max(after, before)
  if last >= 0 then after = math.max(after, before + redis.call('LLEN', log) - last) end
  local from = after - before
  return { after, redis.call('LRANGE', log, from, first and first > 0 and from + first - 1 or -1) }
end
