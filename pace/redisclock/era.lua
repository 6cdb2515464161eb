-- Finds out whether the bucket has lost its memory, and notes since when it has it.
--
-- KEYS[1]  the era of the bucket
-- ARGV     the channel and the message that tell a loss
--
-- All times are microseconds, and Redis's own clock is the only one.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local info = redis.pcall('INFO', 'server') -- a user may lack the right
local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
local era = redis.call('HMGET', KEYS[1], 'since', 'run')
local since, lost = tonumber(era[1] or 0), 0
if not era[1] or run and era[2] and era[2] ~= run then
	-- It is new, was emptied, or is that of an older snapshot or a replica.
	since, lost = now, 1
	redis.call('HSET', KEYS[1], 'since', since)
	redis.call('PUBLISH', ARGV[1], ARGV[2])
end
if run and era[2] ~= run then
	redis.call('HSET', KEYS[1], 'run', run)
end
