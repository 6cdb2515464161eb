package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/robotscache"
)

// silence is the number of timeouts without an answer after which the server counts as gone. A
// server that is slow for a shorter time is probably loaded, perhaps by us. If the gateways then
// fetched for themselves, they would increase the load. So the store is more patient than the link.
const silence = 2

// tryEvery is how often a call tries a server that counts as gone because it was too slow for the
// link, but may be fast enough for the store.
const tryEvery = time.Second

var (
	// errSlow is a call without an answer from a server that does not count as gone.
	errSlow   = errors.New("no answer in time")
	errClosed = errors.New("store is closed")
)

// call sends one command, or several, and returns the result that decides.
type call func(ctx context.Context, c rueidis.Client) rueidis.RedisResult

// do makes one call. Its errors are ErrNotFound for a nil answer, the end of ctx, errSlow, and
// ErrUnavailable for everything else: a server that refuses a call (read-only, out of memory,
// loading) may accept it later.
func (s *Store) do(ctx context.Context, makes call) (result rueidis.RedisResult, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if s.closed.Load() {
		return result, errClosed
	}
	if why := s.gone(); why != nil && (!isSlow(why) || s.link.Client() == nil || !s.tries.Allow()) {
		return result, fmt.Errorf("%w: %w", robotscache.ErrUnavailable, why)
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	result = makes(bounded, s.link.Client())
	err = result.Error()
	_, refused := rueidis.IsRedisErr(err)
	if err == nil || refused || rueidis.IsRedisNil(err) {
		s.heard.Store(new(time.Now()))
	}
	switch {
	case err == nil:
		return result, nil
	case rueidis.IsRedisNil(err):
		return result, robotscache.ErrNotFound
	case link.IsReadOnly(err):
		s.link.Fail(err) // an idle link does not notice by itself
	case refused:
	case ctx.Err() != nil:
		return result, ctx.Err() // says nothing about the server
	case isSlow(err):
		if s.gone() == nil {
			return result, fmt.Errorf("%w (%v)", errSlow, s.cfg.Timeout)
		}
	default:
		s.link.Fail(err)
	}
	return result, fmt.Errorf("%w: %w", robotscache.ErrUnavailable, err)
}

// all makes several calls at once. Its error is the first one that occurs.
func (s *Store) all(ctx context.Context, asked func(rueidis.Builder) rueidis.Commands) (answers []rueidis.RedisResult, err error) {
	_, err = s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		answers = c.DoMulti(ctx, asked(c.B())...)
		return firstFailure(answers)
	})
	return answers, err
}

// firstFailure returns the first result with an error, or one without.
func firstFailure(results []rueidis.RedisResult) rueidis.RedisResult {
	for _, r := range results {
		if r.Error() != nil {
			return r
		}
	}
	return rueidis.RedisResult{}
}

// gone returns why no call can be made: there is no connection, or neither the link nor the store
// got an answer for long. A server that refuses the link's heartbeat may still serve the store.
func (s *Store) gone() error {
	state := s.link.State()
	patient := state.Refused() || isSlow(state.Why) && min(time.Since(state.Since), time.Since(*s.heard.Load())) < silence*s.cfg.Timeout
	if s.link.Client() != nil && (state.Up || patient) {
		return nil
	}
	return state.Why // New has tried to connect, so there is a client or a reason
}

// isSlow reports whether an error is the end of a wait for the server: the caller's, or the
// library's for a connection that is silent.
func isSlow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}
