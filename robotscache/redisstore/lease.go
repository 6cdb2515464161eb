package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/origin"
)

// Lease implements [robotscache.Leaser]: a key with a random token, set only
// where there is none, that expires by itself. A server that is slow to answer is
// asked once more.
func (s *Store) Lease(ctx context.Context, o origin.Origin, ttl time.Duration) (func(), bool, error) {
	key, token := s.leaseKey(o), rand.Text()
	args := []string{token, milliseconds(ttl)}
	acquired := false
	acquire := func(ctx context.Context, c rueidis.Client) error {
		n, err := leaseScript.Exec(ctx, c, []string{key}, args).AsInt64()
		acquired = n == 1
		return err
	}
	err := s.link.do(ctx, acquire)
	if errors.Is(err, errSlow) {
		err = s.link.do(ctx, acquire)
	}
	if err != nil {
		return nil, false, s.fault("leasing "+o.String(), err)
	}
	if !acquired {
		return nil, false, nil
	}
	return func() { s.release(ctx, key, token) }, true, nil
}

// release gives a lease back even if what it was for was broken off. Where that
// fails, the lease runs out.
func (s *Store) release(ctx context.Context, key, token string) {
	_ = s.link.do(context.WithoutCancel(ctx), func(ctx context.Context, c rueidis.Client) error {
		return releaseScript.Exec(ctx, c, []string{key}, []string{token}).Error()
	})
}
