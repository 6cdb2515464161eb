package h1

import (
	"slices"
	"sync"
	"time"
)

// key says to which origin a connection leads.
type key struct{ scheme, host string }

// pool keeps the idle connections to all origins, within a bound on their memory: none has a
// goroutine or a buffer.
type pool struct {
	max     int // of the sum of their sizes
	timeout time.Duration

	mu    sync.Mutex
	conns map[key][]*conn // in each the last one was used last
	used  int             // the sum
	timer *time.Timer     // runs expire, while there are connections
}

func newPool(most int, timeout time.Duration) *pool {
	return &pool{max: most, timeout: timeout, conns: make(map[key][]*conn)}
}

// take returns the connection to an origin that was used last, nil for none. It closes those on the
// way that cannot be used any more.
func (p *pool) take(k key) *conn {
	for {
		p.mu.Lock()
		var c *conn
		if n := len(p.conns[k]); n > 0 {
			c = p.remove(k, n-1)
		}
		p.mu.Unlock()
		if c == nil || c.quiet() {
			return c
		}
		_ = c.Close()
	}
}

// has reports whether there is a connection to an origin.
func (p *pool) has(k key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns[k]) > 0
}

func (p *pool) remove(k key, i int) *conn {
	c := p.conns[k][i]
	if p.conns[k] = slices.Delete(p.conns[k], i, i+1); len(p.conns[k]) == 0 {
		delete(p.conns, k)
	}
	p.used -= c.size()
	return c
}

// put keeps a connection, in place of others where there are too many.
func (p *pool) put(c *conn) {
	c.reused, c.since = true, time.Now()
	p.mu.Lock()
	p.conns[c.key] = append(p.conns[c.key], c)
	p.used += c.size()
	var surplus []*conn
	for p.used > p.max {
		for k := range p.conns { // in random order
			surplus = append(surplus, p.remove(k, 0))
			break
		}
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.expire)
	}
	p.mu.Unlock()
	for _, c := range surplus {
		_ = c.Close()
	}
}

// expire closes the connections that have been idle for too long, by a quarter of the time at most.
func (p *pool) expire() {
	p.close(time.Now().Add(-p.timeout))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer = nil; p.used > 0 {
		p.timer = time.AfterFunc(p.timeout/4, p.expire)
	}
}

// close closes the connections that have been idle since the time given.
func (p *pool) close(since time.Time) {
	var closing []*conn
	p.mu.Lock()
	for k := range p.conns {
		for len(p.conns[k]) > 0 && !p.conns[k][0].since.After(since) {
			closing = append(closing, p.remove(k, 0))
		}
	}
	p.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}
