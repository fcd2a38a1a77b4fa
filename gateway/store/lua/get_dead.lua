-- ARGV: the id of a dead letter
-- Returns its content.
return redis.call('HGET', key('letter', argument()), 'held')
