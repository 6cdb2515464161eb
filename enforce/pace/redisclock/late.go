package redisclock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/enforce/pace"
)

// maxLates is how many late requests may wait to be told. More are not told: a
// word that comes late is of no use.
const maxLates = 256

// late is a request that begins after its slot.
type late struct {
	token token
	began time.Duration // on Redis's clock
}

// Late implements pace.Shared.
func (k *Clock) Late(r pace.Reservation, at time.Time) pace.Reservation {
	t, ok := r.Token.(token)
	if !ok {
		return r
	}
	l := late{token: t, began: k.state.Load().watch.shared(at)}
	if l.began <= t.slot {
		return r
	}
	select {
	case k.lates <- l:
		t.slot = l.began
		r.Token = t
	default: // it is only a courtesy
	}
	return r
}

// tellLates tells of late requests, one after the other, until ctx ends.
func (k *Clock) tellLates(ctx context.Context) {
	for {
		select {
		case l := <-k.lates:
			// If it fails, Redis is away, and heartbeats notice when it is back.
			_ = k.call(ctx, func(ctx context.Context, c rueidis.Client) error {
				return lateScript.Exec(ctx, c, l.token.keys, k.lateArgs(l)).Error()
			})
		case <-ctx.Done():
			return
		}
	}
}

func (k *Clock) lateArgs(l late) []string {
	args := append(make([]string, 0, 3+len(l.token.keys)), micros(l.token.slot), micros(l.began), k.lateChannel())
	for _, key := range l.token.keys {
		m := lateMessage{from: k.config.Name, key: strings.TrimPrefix(key, k.key("")), began: l.began}
		args = append(args, m.String())
	}
	return args
}

// lateMessage tells other gateways of a late request.
type lateMessage struct {
	from, key string
	began     time.Duration // on Redis's clock
}

// String is the form that readLate reads. The key comes last: it may hold
// anything.
func (m lateMessage) String() string {
	return fmt.Sprintf("%s %s %s", m.from, micros(m.began), m.key)
}

func readLate(s string) (lateMessage, error) {
	parts := strings.SplitN(s, " ", 3)
	if len(parts) != 3 {
		return lateMessage{}, fmt.Errorf("reading a late request: %d parts, want 3", len(parts))
	}
	began, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || began <= 0 || began > int64(longestTime/time.Microsecond) {
		return lateMessage{}, fmt.Errorf("reading a late request: %q is no time", parts[1])
	}
	return lateMessage{from: parts[0], key: parts[2], began: time.Duration(began) * time.Microsecond}, nil
}

// longestTime is the last moment that fits.
const longestTime = time.Duration(1<<63 - 1)
