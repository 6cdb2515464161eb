package redisstore

import "github.com/redis/rueidis"

// saveScript replaces a record, unless the server has one with a later attempt;
// one from the future (two minutes by the server's clock) was dated by a wrong
// clock and is replaced. It merges the version into the history, keeps the text,
// and removes a few origins that have expired from the sets.
//
// KEYS: record, history, index, seen, text.
// ARGV: record, version, origin, encoded text or "", retention in ms, number of
// versions.
var saveScript = rueidis.NewLuaScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local old = redis.call('GET', KEYS[1])
if old then
  local had = tonumber(string.sub(old, 1, 16))
  if had and had > tonumber(string.sub(ARGV[1], 1, 16)) and had <= now + 120000000 then
    return 0
  end
end

local ttl = ARGV[5]
redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)
if ARGV[4] ~= '' then
  redis.call('SET', KEYS[5], ARGV[4], 'PX', ttl)
end

local version = cjson.decode(ARGV[2])
local whole, newest = pcall(cjson.decode, redis.call('LINDEX', KEYS[2], 0) or 'null')
if whole and type(newest) == 'table' and newest.state == version.state and newest.sha256 == version.sha256 then
  version.first_seen = newest.first_seen
  redis.call('LSET', KEYS[2], 0, cjson.encode(version))
else
  redis.call('LPUSH', KEYS[2], ARGV[2])
  redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[6]) - 1)
end
redis.call('PEXPIRE', KEYS[2], ttl)

local seconds = tonumber(time[1])
redis.call('ZADD', KEYS[3], 0, ARGV[3])
redis.call('ZADD', KEYS[4], seconds, ARGV[3])
local gone = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', seconds - tonumber(ttl) / 1000 - 1, 'LIMIT', 0, 10)
for _, name in ipairs(gone) do
  redis.call('ZREM', KEYS[3], name)
  redis.call('ZREM', KEYS[4], name)
end
return 1
`)

// leaseScript takes a lease that nobody has. The caller may have it already, by a
// call whose answer it did not get.
//
// KEYS: lease. ARGV: the caller's token, time to live in ms.
var leaseScript = rueidis.NewLuaScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return 1
end
return 0
`)

// renewScript makes a lease last if it is still the caller's.
//
// KEYS: lease. ARGV: the caller's token, time to live in ms.
var renewScript = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
`)

// releaseScript gives back a lease if it is still the caller's.
//
// KEYS: lease. ARGV: the caller's token.
var releaseScript = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
`)
