-- Adds orders, lifts and actions, gives the orders a new version, and tells all gateways to look.
-- An order that is lifted stays so.
--
-- KEYS  the hashes of orders and of lifts, the version, the stream of actions
-- ARGV  the channel, a text that no other write has, what to write as JSON, how many actions to keep
-- answer  the id of the last action in the stream, empty for none
local what = cjson.decode(ARGV[3])
for id, lift in pairs(what.lifted or {}) do
	redis.call('HSET', KEYS[2], id, lift)
	redis.call('HDEL', KEYS[1], id)
end
for id, order in pairs(what.orders or {}) do
	if redis.call('HEXISTS', KEYS[2], id) == 0 then
		redis.call('HSET', KEYS[1], id, order)
	end
end
for _, id in ipairs(what.forgotten or {}) do
	redis.call('HDEL', KEYS[2], id)
end
local action = ''
for _, a in ipairs(what.actions or {}) do
	action = redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[4], '*', 'action', a)
end
if what.orders or what.lifted or what.forgotten then
	-- The text tells this version from one of the same number that a Redis which was set back gives.
	local version = tonumber(string.match(redis.call('GET', KEYS[3]) or '', '^%d+') or '0') + 1
	redis.call('SET', KEYS[3], string.format('%d ', version) .. ARGV[2])
end
redis.call('PUBLISH', ARGV[1], 'look')
return action
