package redisstore

import (
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// A record's value is in the form of package storecodec. Its head is the time of the record's last
// attempt in 16 decimal digits, for the script to compare. Microseconds are what Lua's numbers can
// hold.
const orderDigits = 16

func encodeRecord(r fetch.Record) ([]byte, error) {
	at := r.FetchedAt
	if r.LastFailure.At.After(at) {
		at = r.LastFailure.At
	}
	order := fmt.Appendf(nil, "%0*d", orderDigits, max(at.UnixMicro(), 0))
	if len(order) > orderDigits {
		return nil, fmt.Errorf("%w: attempted %s", robotscache.ErrInvalid, at.Format(time.RFC3339))
	}
	return storecodec.Encode(order, r)
}

func decodeRecord(value []byte) (r fetch.Record, err error) {
	err = storecodec.Decode(value, orderDigits, &r)
	return r, err
}

// saveScript replaces a record, unless the server has one with a later attempt. One dated in the
// future (two minutes by the server's clock) comes from a wrong clock and is replaced. The script
// merges the version into the history, and removes a few expired origins from the sets.
//
// It is sent with each call, 1.5 KB. To load it first is a call to each node of a cluster, and no
// record is saved while one of them is away.
//
// KEYS: record, history, index, seen. ARGV: record, version, origin, retention in ms, number of
// versions.
var saveScript = rueidis.NewLuaScriptNoSha(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local old = redis.call('GET', KEYS[1])
if old then
  local had = tonumber(string.sub(old, 1, 16))
  if had and had > tonumber(string.sub(ARGV[1], 1, 16)) and had <= now + 120000000 then
    return 0
  end
end

local ttl = ARGV[4]
redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)

local version = cjson.decode(ARGV[2])
local whole, newest = pcall(cjson.decode, redis.call('LINDEX', KEYS[2], 0) or 'null')
if whole and type(newest) == 'table' and newest.state == version.state and newest.sha256 == version.sha256 then
  version.first_seen = newest.first_seen
  redis.call('LSET', KEYS[2], 0, cjson.encode(version))
else
  redis.call('LPUSH', KEYS[2], ARGV[2])
  redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[5]) - 1)
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
