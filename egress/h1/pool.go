package h1

import (
	"slices"
	"sync"
	"time"
)

// key identifies the origin that a connection leads to.
type key struct{ scheme, host string }

// pool keeps the idle connections to all origins, and bounds their memory. An idle connection has
// no goroutine and no buffer.
type pool struct {
	max     int // bounds used
	timeout time.Duration

	mu    sync.Mutex
	conns map[key][]*conn // the most recently used one is last
	used  int             // the sum of the connections' sizes
	timer *time.Timer     // runs expire while there are connections
}

func newPool(most int, timeout time.Duration) *pool {
	return &pool{max: most, timeout: timeout, conns: make(map[key][]*conn)}
}

// take returns the most recently used connection to an origin, or nil. It closes the unusable ones
// that it finds on the way.
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

// put keeps a connection. If there are too many, it closes others.
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

// expire closes the connections that have been idle for too long, late by at most a quarter of that
// time.
func (p *pool) expire() {
	p.close(time.Now().Add(-p.timeout))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer = nil; p.used > 0 {
		p.timer = time.AfterFunc(p.timeout/4, p.expire)
	}
}

// close closes the connections that have been idle since the given time.
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
