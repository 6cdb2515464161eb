-- Notes that a gateway is alive and what it has applied, and forgets those that were silent too long.
--
-- KEYS  the gateways by the time of their last heartbeat, what they say of themselves
-- ARGV  this gateway's process, what it says, and in ms: how long gateways are known, how long they
--       count as alive
-- answer  Redis's time in ms, and how many gateways are alive
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3], 'LIMIT', 0, 100)) do
	redis.call('ZREM', KEYS[1], gone)
	redis.call('HDEL', KEYS[2], gone)
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3] * 2)
redis.call('PEXPIRE', KEYS[2], ARGV[3] * 2)
return {now, redis.call('ZCOUNT', KEYS[1], now - ARGV[4], '+inf')}
