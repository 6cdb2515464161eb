package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Lease implements [robotscache.Leaser]: a key with a random token, set only
// where there is none, that expires by itself. A server that is slow to answer is
// asked once more.
func (s *Store) Lease(ctx context.Context, o origin.Origin, ttl time.Duration) (robotscache.Lease, bool, error) {
	l := &lease{store: s, origin: o, token: rand.Text(), ttl: milliseconds(ttl)}
	acquired, err := l.ask(ctx, leaseScript)
	if errors.Is(err, errSlow) {
		acquired, err = l.ask(ctx, leaseScript)
	}
	switch {
	case err != nil:
		return nil, false, s.fault("leasing "+o.String(), err)
	case !acquired:
		return nil, false, nil
	}
	return l, true, nil
}

// lease implements [robotscache.Lease].
type lease struct {
	store  *Store
	origin origin.Origin
	token  string
	ttl    string
}

// ask runs a script that answers whether the lease is the caller's.
func (l *lease) ask(ctx context.Context, script *rueidis.Lua) (held bool, err error) {
	err = l.store.link.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		n, err := script.Exec(ctx, c, []string{l.store.leaseKey(l.origin)}, []string{l.token, l.ttl}).AsInt64()
		held = n == 1
		return err
	})
	return held, err
}

// Renew implements [robotscache.Lease].
func (l *lease) Renew(ctx context.Context) (held bool, err error) {
	if held, err = l.ask(ctx, renewScript); err != nil {
		return false, l.store.fault("renewing the lease of "+l.origin.String(), err)
	}
	return held, nil
}

// Release implements [robotscache.Lease], also where what the lease was for was
// broken off. Where it fails, the lease runs out.
func (l *lease) Release() { _, _ = l.ask(context.Background(), releaseScript) }
