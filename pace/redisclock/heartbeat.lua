-- Notes that a gateway is alive, and counts those that are.
--
-- KEYS[1]  the set of gateways, by the time of their last heartbeat
-- ARGV     this gateway's name, the lease in microseconds
-- answer   the number of gateways
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local lease = tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - lease)
redis.call('PEXPIRE', KEYS[1], math.ceil(lease / 1000) * 10)
return redis.call('ZCARD', KEYS[1])
