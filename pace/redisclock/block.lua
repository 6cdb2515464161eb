-- Blocks a clock and tells all gateways.
--
-- KEYS[1]  the clock
-- ARGV     the pause in microseconds, the channel, the message
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local keep = 120000
local till = math.max(now + tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[1], 'until') or 0))
redis.call('HSET', KEYS[1], 'until', till)
local ttl = math.ceil((till - now) / 1000) + keep
if redis.call('PTTL', KEYS[1]) < ttl then
	redis.call('PEXPIRE', KEYS[1], ttl)
end
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
