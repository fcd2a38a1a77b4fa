-- ARGV: the format that this brings the partition to
-- Every migration begins with this, and calls `migrate` with what it has to do.
local becomes = tonumber(argument())

-- Two processes may come at the same time: it happens once.
local function migrate(change)
  if tonumber(kept[2] or 1) >= becomes then return end
  change()
  redis.call('SET', key('format'), becomes)
end
