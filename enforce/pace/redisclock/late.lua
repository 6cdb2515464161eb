-- Notes that a request begins later than its slot, and tells all gateways.
--
-- KEYS     the clocks
-- ARGV     the slot, when the request began, the channel, a message for each clock
-- answer   at how many clocks the next slot will be counted from then
local slot, began = tonumber(ARGV[1]), tonumber(ARGV[2])
local n = 0
for i, key in ipairs(KEYS) do
	local s = redis.call('HMGET', key, 'last', 'tat')
	-- Where others have booked since, the message lets them wait.
	if tonumber(s[1]) == slot and s[2] then
		redis.call('HSET', key, 'last', began, 'tat', tonumber(s[2]) + began - slot)
		n = n + 1
	end
	redis.call('PUBLISH', ARGV[3], ARGV[3 + i])
end
return n
