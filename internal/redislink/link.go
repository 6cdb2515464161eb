package redislink

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Options reads a URL: redis://, rediss:// or unix://, with the parameters of rueidis.ParseURL.
// timeout bounds dialing. Errors leave the URL out, because it may hold a password.
//
// Each call is made once, without client-side caching, over one connection: if there were several,
// each would have to find out by itself that the server is gone.
func Options(rawURL string, timeout time.Duration) (rueidis.ClientOption, error) {
	if rawURL == "" {
		return rueidis.ClientOption{}, errors.New("parsing the redis URL: it is empty")
	}
	option, err := rueidis.ParseURL(rawURL)
	if parse, ok := errors.AsType[*url.Error](err); ok {
		err = parse.Err
	}
	if err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("parsing the redis URL: %w", err)
	}
	option.DisableCache, option.DisableRetry, option.PipelineMultiplex = true, true, -1
	option.Dialer.Timeout = timeout
	option.ConnWriteTimeout = time.Second
	return option, nil
}

// CheckURL refuses a URL that [Options] cannot use, before anything dials it. It accepts every text
// with Caddy placeholders, because their values are not known yet. Errors leave the URL out.
func CheckURL(raw string) error {
	if strings.Contains(raw, "{") {
		return nil
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("redis url cannot be parsed")
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return fmt.Errorf("redis url has scheme %q: want redis, rediss or unix", u.Scheme)
	case u.Scheme != "unix" && u.Hostname() == "":
		return errors.New("redis url names no host")
	}
	return nil
}

// Link is a client that is made when the server can be reached for the first time. It is safe for
// concurrent use.
type Link struct {
	option rueidis.ClientOption
	client atomic.Pointer[rueidis.Client]

	mu     sync.Mutex // held while the client is set or closed
	closed bool
}

// New makes a link. It does not connect yet.
func New(option rueidis.ClientOption) *Link { return &Link{option: option} }

// Connect makes the client. The server must be reachable for that; later the client reconnects by
// itself.
func (l *Link) Connect() (rueidis.Client, error) {
	if c := l.Client(); c != nil {
		return c, nil
	}
	c, err := rueidis.NewClient(l.option)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		c.Close()
		return nil, errClosed
	case l.Client() != nil:
		c.Close()
	default:
		l.client.Store(&c)
	}
	return l.Client(), nil
}

var errClosed = errors.New("the link to redis is closed")

// Client returns the client, or nil before the first connection.
func (l *Link) Client() rueidis.Client {
	if c := l.client.Load(); c != nil {
		return *c
	}
	return nil
}

// Channel returns the name of a channel of the link's database: Redis delivers a message to the
// subscribers of all databases.
func (l *Link) Channel(name string) string {
	if l.option.SelectDB == 0 {
		return name
	}
	return name + ":" + strconv.Itoa(l.option.SelectDB)
}

// Listen hands the messages of a channel to heard, which must not block, until ctx ends. It
// subscribes again after pause whenever the connection has ended.
func (l *Link) Listen(ctx context.Context, channel string, pause time.Duration, heard func(message string)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for ctx.Err() == nil {
		if c := l.Client(); c != nil {
			// It ends with the connection, and always with an error.
			_ = c.Receive(ctx, c.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { heard(m.Message) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Close ends the connection.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.Client(); c != nil && !l.closed {
		c.Close()
	}
	l.closed = true
}
