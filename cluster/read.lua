-- Reads values of a hash, but for those that are too long.
--
-- KEYS  the hash
-- ARGV  the most bytes of a value, the fields
-- answer  the values, each empty where there is none
local values = {}
for i = 2, #ARGV do
	values[i - 1] = ''
	if redis.call('HSTRLEN', KEYS[1], ARGV[i]) <= tonumber(ARGV[1]) then
		values[i - 1] = redis.call('HGET', KEYS[1], ARGV[i]) or ''
	end
end
return values
