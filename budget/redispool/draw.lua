-- Draws from a counter, or gives back to it. Answers {granted, left, 1 if there is no room for the
-- counter, the memory, the draws}. The memory is when the hash was made, and the draws are how often
-- it was changed since then.
--
-- KEYS[1] the counters of an agent and a day
-- ARGV[1] the counter, ARGV[2] its limit
-- ARGV[3] what has been used beyond what was drawn, below 0 what goes back
-- ARGV[4] how much is wanted
-- ARGV[5] how much was drawn, if Redis has forgotten it
-- ARGV[6] for how long the counters are kept, in ms, and ARGV[7] how many there may be
-- ARGV[8] the channel, ARGV[9] the message that something is needed, empty for none, and ARGV[10]
-- that it came back
-- ARGV[11] the memory that the gateway knows, 0 for none, and ARGV[12] what a new one is, in µs
-- ARGV[13] the draws that the gateway knows, and ARGV[14] the message that the memory is new
local limit, settle, want = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local memory = redis.call('HGET', KEYS[1], 'memory')
local draws = tonumber(redis.call('HGET', KEYS[1], 'draws') or 0)
if not memory or memory == ARGV[11] and draws < tonumber(ARGV[13]) then -- Redis was emptied, or set back
	memory = ARGV[12]
	redis.call('HSET', KEYS[1], 'memory', memory, 'draws', string.format('%.0f', draws))
	redis.call('PEXPIRE', KEYS[1], ARGV[6])
	redis.call('PUBLISH', ARGV[8], ARGV[14])
end
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before and string.sub(ARGV[1], 1, 5) == 'host ' and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[7]) + 1 then
	return {want > 0 and limit or 0, 0, 1, tonumber(memory), draws}
end
before = tonumber(before or 0)
local forgot = ARGV[11] ~= '0' and ARGV[11] ~= memory
if forgot then
	before = math.max(before, tonumber(ARGV[5]))
end
local drawn = math.max(before + settle, 0)
local granted = math.max(math.min(want, limit - drawn), 0)
if want > 0 or settle ~= 0 or forgot then
	draws = draws + 1
	redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', drawn + granted), 'draws', string.format('%.0f', draws))
	redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
if want > 0 and granted == 0 and ARGV[9] ~= '' then
	redis.call('PUBLISH', ARGV[8], ARGV[9])
elseif settle < 0 and before >= limit and drawn + granted < limit then
	redis.call('PUBLISH', ARGV[8], ARGV[10])
end
return {granted, limit - drawn - granted, 0, tonumber(memory), draws}
