-- Reserves one slot, and a place where places are counted, at all clocks or at none. It comes after
-- era.lua. Beside a clock, with its hash tag, are a zset of leases by their end, and whose turn it
-- is to get the next place: a gateway that has just given one back must not always be first.
--
-- KEYS[2+] the clocks, from the narrow to the wide
-- ARGV[3]  the longest wait
-- ARGV[4]  the shortest wait
-- ARGV[5]  the gateway
-- ARGV[6]  the lease, and ARGV[7] for how long it holds
-- ARGV[8+] for each clock: interval, tolerance, delay, whether the burst is spent, places or 0
-- answer   {outcome, wait, slot, blocked, number of the blocked clock, whether memory was lost}
--          outcome: 0 too late, 1 reserved, 2 not yet, 3 full
local longest = tonumber(ARGV[3])
local least = now + tonumber(ARGV[4])
local begin = since + 1000000 -- until then gateways go for slots that are forgotten
local keep = 120000 -- milliseconds after which an idle clock is forgotten

local retry = 100000 -- how soon to ask again for a place

local clocks, slot, narrow = {}, least, least
local blocked, which, outcome, full = 0, 0, 1, false
for i = 1, #KEYS - 1 do
	local a = 8 + (i - 1) * 5
	local c = {
		interval = tonumber(ARGV[a]),
		tolerance = tonumber(ARGV[a + 1]),
		delay = tonumber(ARGV[a + 2]),
		spent = ARGV[a + 3] == 'true',
		places = tonumber(ARGV[a + 4]),
	}
	local s = redis.call('HMGET', KEYS[i + 1], 'tat', 'last', 'gap', 'until')
	c.tat, c.last = tonumber(s[1] or 0), tonumber(s[2] or 0)
	c.gap, c.block = tonumber(s[3] or 0), tonumber(s[4] or 0)
	if c.last < begin then
		-- Requests that are forgotten may have gone until then, and have used the burst.
		c.last, c.tat = begin, math.max(c.tat, begin + c.interval + c.tolerance)
	end
	local ready = math.max(least, c.block, c.tat - c.tolerance, c.last + math.max(c.gap, c.delay))
	if c.block > now and blocked == 0 then
		blocked, which = c.block - now, i
	end
	if narrow - ready > math.max(c.interval, c.delay) then
		-- A reservation now would keep this clock from others until a narrower one
		-- is ready.
		outcome = 2
	end
	narrow = math.max(narrow, ready)
	slot = narrow
	if c.places > 0 then
		redis.call('ZREMRANGEBYSCORE', KEYS[i + 1] .. ' places', '-inf', now)
		local free = c.places - redis.call('ZCARD', KEYS[i + 1] .. ' places')
		c.turn = free < 2 and redis.call('GET', KEYS[i + 1] .. ' turn')
		c.full = free < 1 or c.turn and c.turn ~= ARGV[5]
		full = full or c.full
	end
	clocks[i] = c
end

if slot - now > longest then
	return {0, slot - now, 0, blocked, which, lost}
end
if begin > now then
	return {2, begin - now, 0, blocked, which, lost}
end
if outcome == 2 then
	return {2, slot - now, 0, blocked, which, lost}
end
if full then
	for i, c in ipairs(clocks) do
		if c.full then
			-- If all places are of slots to come, none is free before the first of them.
			retry = math.max(retry, math.min(slot - now - c.places * math.max(c.interval, c.delay), 2000000))
		end
	end
	for i, c in ipairs(clocks) do
		if c.full and (not c.turn or c.turn == ARGV[5]) then
			redis.call('SET', KEYS[i + 1] .. ' turn', ARGV[5], 'PX', math.ceil(retry / 1000) * 3)
		end
	end
	return {3, retry, 0, blocked, which, lost}
end
for i, c in ipairs(clocks) do
	if c.places > 0 then
		redis.call('ZADD', KEYS[i + 1] .. ' places', now + tonumber(ARGV[7]), ARGV[6])
		redis.call('PEXPIRE', KEYS[i + 1] .. ' places', keep)
		if c.turn then
			redis.call('DEL', KEYS[i + 1] .. ' turn')
		end
	end
	if c.spent or c.block > c.last then
		-- Requests that piled up during a block must not burst.
		c.tat = math.max(c.tat, slot + c.tolerance)
	end
	local tat = math.max(c.tat, slot) + c.interval
	redis.call('HSET', KEYS[i + 1], 'tat', tat, 'last', slot, 'gap', c.delay,
		'ptat', c.tat, 'plast', c.last, 'pgap', c.gap)
	local free = math.max(tat, slot + c.delay, c.block)
	redis.call('PEXPIRE', KEYS[i + 1], math.ceil((free - now) / 1000) + keep)
end
return {1, slot - now, slot, blocked, which, lost}
