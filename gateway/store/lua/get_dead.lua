-- ARGV: the id of a dead letter
-- Answers what it holds.
return redis.call('HGET', key('letter', argument()), 'held')
