-- Returns the count of waiting events in this partition.
return redis.call('ZCARD', key('stamps'))
