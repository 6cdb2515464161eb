-- Gives a slot back at each clock where it is the last that was reserved, and the places.
--
-- KEYS     the clocks
-- ARGV[1]  the slot, as reserve returned it
-- ARGV[2]  the lease
-- answer   at how many clocks it was given back
local n = 0
for _, key in ipairs(KEYS) do
	redis.call('ZREM', key .. ' places', ARGV[2])
	local s = redis.call('HMGET', key, 'last', 'ptat', 'plast', 'pgap')
	if s[2] and tonumber(s[1]) == tonumber(ARGV[1]) then
		redis.call('HSET', key, 'tat', s[2], 'last', s[3], 'gap', s[4])
		redis.call('HDEL', key, 'ptat', 'plast', 'pgap')
		n = n + 1
	end
end
return n
