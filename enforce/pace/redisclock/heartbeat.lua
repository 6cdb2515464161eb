-- Notes that a gateway is alive, and counts those that are.
--
-- KEYS[1]  the set of gateways, by the time of their last heartbeat
-- KEYS[2]  since when at least one of them was always there, and whether any that
--          came then had been on its own
-- ARGV     this gateway's name, the lease, how long after the last heartbeat there
--          is none, how long after the first one all go back to the shared clock,
--          in microseconds, and 1 if this gateway has been on its own
-- answer   {time, number of gateways, this one's rank among them by name, since
--          when at least one was there, 1 if any had been on its own}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local lease = tonumber(ARGV[2])
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local since = tonumber(redis.call('HGET', KEYS[2], 'since') or 0)
if since == 0 or not last[2] or now - tonumber(last[2]) > tonumber(ARGV[3]) then
	since = now
	redis.call('HSET', KEYS[2], 'since', since, 'alone', 0)
end
if ARGV[5] == '1' and now < since + tonumber(ARGV[4]) then
	redis.call('HSET', KEYS[2], 'alone', 1)
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - lease)
redis.call('PEXPIRE', KEYS[1], math.ceil(lease / 1000) * 10)
redis.call('PEXPIRE', KEYS[2], math.ceil(lease / 1000) * 10)
local names = redis.call('ZRANGE', KEYS[1], 0, -1)
local rank = 0
for _, name in ipairs(names) do
	if name < ARGV[1] then
		rank = rank + 1
	end
end
return {now, #names, rank, since, tonumber(redis.call('HGET', KEYS[2], 'alone'))}
