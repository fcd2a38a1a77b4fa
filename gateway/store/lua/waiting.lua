-- Answers how many events wait in this partition.
return redis.call('ZCARD', key('stamps'))
