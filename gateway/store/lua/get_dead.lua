-- ARGV: the id of a dead letter
-- Returns the content.
return redis.call('HGET', key('letter', argument()), 'held')
