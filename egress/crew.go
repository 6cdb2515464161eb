package egress

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// crew runs the handlers of HTTP/2 requests on goroutines that it keeps. net/http begins a new one for each, whose stack has
// to grow by steps to what a request through a gateway needs: a tenth of what the request costs.
type crew struct {
	handler http.Handler
	jobs    chan *job
	closed  chan struct{}
	once    sync.Once
	idle    atomic.Int64
}

// idleCrew bounds the goroutines that are kept for later. With their stacks they take 2 MiB.
const idleCrew = 64

// job is one request, and what became of its handler.
type job struct {
	w        http.ResponseWriter
	r        *http.Request
	done     chan struct{}
	panicked any
}

func newCrew(h http.Handler) *crew {
	return &crew{handler: h, jobs: make(chan *job), closed: make(chan struct{})}
}

// ServeHTTP is part of [http.Handler].
func (c *crew) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 { // its connection has a goroutine of its own
		c.handler.ServeHTTP(w, r)
		return
	}
	j := &job{w: w, r: r, done: make(chan struct{})}
	select {
	case c.jobs <- j:
	default:
		go c.work(j)
	}
	<-j.done
	if j.panicked != nil {
		panic(j.panicked)
	}
}

// work does one job after the other, as long as there are not too many who wait for one.
func (c *crew) work(j *job) {
	for {
		c.do(j)
		if c.idle.Add(1) > idleCrew {
			c.idle.Add(-1)
			return
		}
		select {
		case j = <-c.jobs:
			c.idle.Add(-1)
		case <-c.closed:
			return
		}
	}
}

// do runs the handler. A panic of it belongs to the server's goroutine. [runtime.Goexit] takes this one away; the response is
// as broken off as by a panic.
func (c *crew) do(j *job) {
	defer close(j.done)
	finished := false
	defer func() {
		j.panicked = recover()
		switch {
		case finished:
		case j.panicked == nil:
			j.panicked = http.ErrAbortHandler
		case j.panicked != http.ErrAbortHandler: //nolint:errorlint // net/http compares it so
			j.panicked = fmt.Sprintf("%v\n\nof the handler's goroutine:\n%s", j.panicked, debug.Stack())
		}
	}()
	c.handler.ServeHTTP(j.w, j.r)
	finished = true
}

// close lets the idle ones go, and those at work when they have finished it. Requests may still come.
func (c *crew) close() { c.once.Do(func() { close(c.closed) }) }
