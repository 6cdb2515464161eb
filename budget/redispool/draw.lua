-- Draws from a counter, or gives back to it. Answers {granted, left, 1 if there is no room for the
-- counter}.
--
-- KEYS[1] the counters of an agent and a day
-- ARGV[1] the counter, ARGV[2] its limit
-- ARGV[3] what has been used beyond what was drawn, below 0 what goes back
-- ARGV[4] how much is wanted
-- ARGV[5] how much was drawn, if Redis has forgotten it
-- ARGV[6] for how long the counters are kept, in ms, and ARGV[7] how many there may be
-- ARGV[8] the channel, ARGV[9] the message that something is needed, and ARGV[10] that it came back
local limit, settle, want = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[7]) then
	return {want > 0 and limit or 0, 0, 1}
end
before = tonumber(before or ARGV[5])
local drawn = math.max(before + settle, 0)
local granted = math.max(math.min(want, limit - drawn), 0)
if want > 0 or settle ~= 0 then
	redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', drawn + granted))
	redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
if want > 0 and granted == 0 then
	redis.call('PUBLISH', ARGV[8], ARGV[9])
elseif settle < 0 and drawn + granted < limit then
	redis.call('PUBLISH', ARGV[8], ARGV[10])
end
return {granted, limit - drawn - granted, 0}
