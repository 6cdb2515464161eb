-- Reads the answers to an order from what gateways say of themselves.
--
-- KEYS  what they say
-- ARGV  the order, the gateways
-- answer  the answers, each empty where there is none
local answers = {}
for i = 2, #ARGV do
	local said = redis.call('HGET', KEYS[1], ARGV[i]) or ''
	local at = string.find(said, '"' .. ARGV[1] .. '":', 1, true)
	answers[i - 1] = at and string.match(said, '%b{}', at) or ''
end
return answers
