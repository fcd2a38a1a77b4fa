-- ARGV: the format to which this migrates the partition
-- The beginning of every migration, which calls `migrate` with its changes.
local becomes = tonumber(argument())

-- Two processes may migrate at the same time: the changes are made once.
local function migrate(change)
  if format >= becomes then return end
  change()
  redis.call('SET', key('format'), becomes)
end
