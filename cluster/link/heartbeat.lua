-- Notes that a gateway is alive and what it says of itself, counts those that are, and forgets those
-- that were silent too long.
--
-- KEYS  the gateways of the fleet by the time of their last heartbeat, what they say of themselves,
--       the gateways that share clocks by the time of their last heartbeat
-- ARGV  this gateway's process, what it says (empty: it is not of the fleet), whether it leaves the
--       fleet, whether it shares clocks, and in ms: how long gateways are known, how long they count
--       as alive; and of how many it knows its place (0: of none, -1: it does not ask)
-- answer  Redis's time in ms, how many gateways are alive, of the fleet and with shared clocks, and how
--         many of the latter come before this one by name: -1 if it does not ask, or their number
--         is the one that it knows, as it takes Redis long to go through many
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local dead = now - ARGV[6]
local function note(set, belongs, at)
	for _, gone in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', now - ARGV[5], 'LIMIT', 0, 100)) do
		redis.call('ZREM', set, gone)
		if set == KEYS[1] then
			redis.call('HDEL', KEYS[2], gone)
		end
	end
	if belongs then
		redis.call('ZADD', set, at, ARGV[1])
		redis.call('PEXPIRE', set, ARGV[5] * 2)
	end
	return redis.call('ZCOUNT', set, '(' .. dead, '+inf')
end
local fleet = note(KEYS[1], ARGV[2] ~= '', ARGV[3] == 'true' and dead or now)
if ARGV[2] ~= '' then
	redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
	redis.call('PEXPIRE', KEYS[2], ARGV[5] * 2)
end
if ARGV[4] ~= 'true' then
	redis.call('ZREM', KEYS[3], ARGV[1])
end
local clocks, known, before = note(KEYS[3], ARGV[4] == 'true', now), tonumber(ARGV[7]), -1
if known >= 0 and known ~= clocks then
	before = 0
	for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. dead, '+inf', 'LIMIT', 0, 1000)) do
		if name < ARGV[1] then
			before = before + 1
		end
	end
end
return {now, fleet, clocks, before}
