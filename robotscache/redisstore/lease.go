package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Lease implements [robotscache.Leaser]: a key with a random token that expires by itself. It is
// set only if the key does not exist. If the server is slow to answer, Lease asks once more.
func (s *Store) Lease(ctx context.Context, k fetch.Key, ttl time.Duration) (robotscache.Lease, bool, error) {
	l := &lease{store: s, key: k, token: rand.Text(), ttl: milliseconds(ttl)}
	acquired, err := l.ask(ctx, leaseScript, l.ttl)
	if errors.Is(err, errSlow) {
		acquired, err = l.ask(ctx, leaseScript, l.ttl)
	}
	switch {
	case err != nil:
		return nil, false, s.fault("leasing "+k.String(), err)
	case !acquired:
		return nil, false, nil
	}
	return l, true, nil
}

// lease implements [robotscache.Lease].
type lease struct {
	store *Store
	key   fetch.Key
	token string
	ttl   string
}

// ask runs a script that answers whether the lease is the caller's.
func (l *lease) ask(ctx context.Context, script *rueidis.Lua, ttl string) (held bool, err error) {
	result, err := l.store.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return script.Exec(ctx, c, []string{l.store.key("l:", l.key.String())}, []string{l.token, ttl})
	})
	if err != nil {
		return false, err
	}
	return result.AsBool()
}

// Renew implements [robotscache.Lease].
func (l *lease) Renew(ctx context.Context) (held bool, err error) {
	held, err = l.ask(ctx, renewScript, l.ttl)
	return held, l.store.fault("renewing the lease of "+l.key.String(), err)
}

// Release implements [robotscache.Lease]. It works after the end of the context for which the lease
// was taken; where it fails, the lease runs out.
func (l *lease) Release() { _, _ = l.ask(context.Background(), renewScript, "0") }

// leaseScript takes a lease that nobody has. The caller may have it already, by a call whose answer
// it did not get.
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

// renewScript makes a lease last for a time to live from now on, or ends it where that is 0, if it
// is still the caller's.
//
// KEYS: lease. ARGV: the caller's token, time to live in ms.
var renewScript = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
`)
