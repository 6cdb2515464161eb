-- Ends the block of a clock and tells all gateways.
--
-- KEYS[1]  the clock
-- ARGV     the channel, the message
-- answer   1 if there was a block
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local found = 0
if tonumber(redis.call('HGET', KEYS[1], 'until') or 0) > now then
	-- Not deleted: the first request after a block must not burst.
	redis.call('HSET', KEYS[1], 'until', now)
	found = 1
end
redis.call('PUBLISH', ARGV[1], ARGV[2])
return found
