-- Adds orders, lifts and actions, gives the orders a new version, and tells all gateways to look.
-- An order that is lifted stays so.
--
-- A write also goes into the stream of changes, from one version to the next, so that a gateway which
-- has the first needs nothing but the change. A write that is too long does not, nor does one to
-- hashes that somebody else has changed since the version: then gateways read all ids.
--
-- KEYS  the hashes of orders and of lifts, the version, the streams of actions and of changes
-- ARGV  the channel, a text that no other write has, what to write as JSON, how many actions to keep,
--       how many changes, the most bytes of one
-- answer  the id of the last action in the stream, empty for none
local what = cjson.decode(ARGV[3])
local function count()
	return redis.call('HLEN', KEYS[1]) .. ' ' .. redis.call('HLEN', KEYS[2])
end
local before = redis.call('GET', KEYS[3]) or ''
local whole = string.match(before, '^%d+ %w+ (.*)$') == count()
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
	local number = string.format('%d', tonumber(string.match(before, '^%d+') or '0') + 1)
	local version = number .. ' ' .. ARGV[2] .. ' ' .. count()
	redis.call('SET', KEYS[3], version)
	if whole and #ARGV[3] <= tonumber(ARGV[6]) then
		local added = redis.pcall('XADD', KEYS[5], 'MAXLEN', '~', ARGV[5], number .. '-0', 'from', before, 'to', version, 'write', ARGV[3])
		if type(added) == 'table' then -- an error: the version was lost, and its numbers begin anew
			redis.call('DEL', KEYS[5])
		end
	end
end
redis.call('PUBLISH', ARGV[1], 'look')
return action
