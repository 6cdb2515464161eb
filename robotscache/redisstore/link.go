package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/internal/redislink"
	"github.com/crawlgate/crawlgate/robotscache"
)

// link calls the server: it bounds each call, and while the server is gone lets one call each
// second try, and connect if nobody has.
type link struct {
	*redislink.Link
	address string // without credentials
	timeout time.Duration

	mu      sync.Mutex
	closed  bool
	failed  error     // why the server counts as gone, nil while it does not
	nextTry time.Time // when a call may try again while failed
	silent  time.Time // since when calls get no answer; zero while they do
}

const (
	// silence is the number of timeouts without an answer after which the server counts as gone. A
	// single call without an answer is a sign of load, perhaps our own: gateways that fetched for
	// themselves then would make the load greater.
	silence = 2
	// tryPause is the time between two tries while the server is gone.
	tryPause = time.Second
)

// errSlow is a call without an answer from a server that does not count as gone.
var errSlow = errors.New("no answer in time")

var errClosed = errors.New("store is closed")

func newLink(rawURL string, timeout time.Duration) (*link, error) {
	options, err := redislink.Options(rawURL, timeout)
	if err != nil {
		return nil, err
	}
	options.ConnWriteTimeout = 4 * timeout
	options.ReadBufferEachConn = 64 << 10
	options.WriteBufferEachConn = 64 << 10
	l := &link{Link: redislink.New(options), address: strings.Join(options.InitAddress, ","), timeout: timeout}
	if _, err := l.Connect(); err != nil {
		l.gone(err)
	}
	return l, nil
}

// call sends one command, or several, and returns the result that decides.
type call func(ctx context.Context, c rueidis.Client) rueidis.RedisResult

// do makes one call. Its errors are ErrNotFound for a nil answer, the end of ctx, errSlow, and
// ErrUnavailable for everything else: a server that refuses a call (read-only, out of memory,
// loading) may accept it later.
func (l *link) do(ctx context.Context, makes call) (result rueidis.RedisResult, err error) {
	if err := l.enter(ctx); err != nil {
		return result, err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	c, err := l.Connect()
	if err == nil {
		result = makes(bounded, c)
		err = result.Error()
	}
	_, refused := rueidis.IsRedisErr(err) // which a nil answer is too
	if err == nil || refused {
		l.answered()
	}
	switch {
	case err == nil:
		return result, nil
	case rueidis.IsRedisNil(err):
		return result, robotscache.ErrNotFound
	case refused:
	case ctx.Err() != nil:
		return result, ctx.Err() // says nothing about the server
	case errors.Is(err, context.DeadlineExceeded): // the library may give up a little before bounded ends
		if !l.noAnswer(began, err) {
			return result, fmt.Errorf("%w (%v)", errSlow, l.timeout)
		}
	default:
		l.gone(err)
	}
	return result, fmt.Errorf("%w: %w", robotscache.ErrUnavailable, err)
}

// enter admits a call unless the server is gone and it is not yet time to try again.
func (l *link) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if l.failed == nil {
		return nil
	}
	now := time.Now()
	if now.Before(l.nextTry) {
		return fmt.Errorf("%w: %w", robotscache.ErrUnavailable, l.failed)
	}
	l.nextTry = now.Add(tryPause)
	return nil
}

// answered notes that a call got an answer.
func (l *link) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed, l.silent = nil, time.Time{}
}

// noAnswer notes that a call got no answer, and reports whether the server is gone.
func (l *link) noAnswer(began time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent.IsZero() || began.Before(l.silent) {
		l.silent = began
	}
	if l.failed == nil && time.Since(l.silent) >= silence*l.timeout {
		l.failed, l.nextTry = err, time.Now().Add(tryPause)
	}
	return l.failed != nil
}

// gone notes that there is no connection.
func (l *link) gone(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.nextTry = time.Now().Add(tryPause)
	}
	l.failed = err
}

// close ends the link.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Close()
}
