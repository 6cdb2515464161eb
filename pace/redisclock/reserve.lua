-- Reserves one slot at all clocks or at none.
--
-- KEYS     the clocks, from the narrow to the wide
-- ARGV[1]  the longest wait
-- ARGV[2+] for each clock: interval, tolerance, delay, whether the burst is spent
-- answer   {outcome, wait, slot, blocked, number of the blocked clock}
--          outcome: 0 too late, 1 reserved, 2 not yet
--
-- All times are microseconds, and Redis's own clock is the only one.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local longest = tonumber(ARGV[1])
local keep = 120000 -- milliseconds after which an idle clock is forgotten

local clocks, slot, narrow = {}, now, now
local blocked, which, outcome = 0, 0, 1
for i, key in ipairs(KEYS) do
	local a = 2 + (i - 1) * 4
	local c = {
		interval = tonumber(ARGV[a]),
		tolerance = tonumber(ARGV[a + 1]),
		delay = tonumber(ARGV[a + 2]),
		spent = ARGV[a + 3] == 'true',
	}
	local s = redis.call('HMGET', key, 'tat', 'last', 'gap', 'until')
	c.tat, c.last = tonumber(s[1] or 0), tonumber(s[2] or 0)
	c.gap, c.block = tonumber(s[3] or 0), tonumber(s[4] or 0)
	local ready = math.max(now, c.block, c.tat - c.tolerance, c.last + math.max(c.gap, c.delay))
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
	clocks[i] = c
end

if slot - now > longest then
	return {0, slot - now, 0, blocked, which}
end
if outcome == 2 then
	return {2, slot - now, 0, blocked, which}
end
for i, key in ipairs(KEYS) do
	local c = clocks[i]
	if c.spent or c.block > c.last then
		-- Requests that piled up during a block must not burst.
		c.tat = math.max(c.tat, slot + c.tolerance)
	end
	local tat = math.max(c.tat, slot) + c.interval
	redis.call('HSET', key, 'tat', tat, 'last', slot, 'gap', c.delay,
		'ptat', c.tat, 'plast', c.last, 'pgap', c.gap)
	local free = math.max(tat, slot + c.delay, c.block)
	redis.call('PEXPIRE', key, math.ceil((free - now) / 1000) + keep)
end
return {1, slot - now, slot, blocked, which}
