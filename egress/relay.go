package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Traffic counts the octets of a relay.
type Traffic struct {
	Up   int64 // from the client
	Down int64 // towards the client
}

// ErrIdle ends a relay through which nothing has passed for too long.
var ErrIdle = errors.New("idle for too long")

// sipSize is what an idle direction of a relay holds on to. Only a direction that fills it borrows a large buffer, for
// as long as it fills that.
const sipSize = 1 << 10

// relay copies octets both ways until both directions have ended, and closes both ends. The end of one direction is
// passed on by closing the sending half of the other end; where that has no such half the relay ends. A failure, the
// end of ctx, or idle without an octet either way ends both directions.
func relay(ctx context.Context, client, origin io.ReadWriteCloser, idle time.Duration) (Traffic, error) {
	r := &relaying{client: client, origin: origin, start: time.Now()}
	r.watch(idle)
	stop := context.AfterFunc(ctx, func() { r.end(context.Cause(ctx)) })
	defer stop()
	var up int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		up = r.copy(origin, client, true)
	}()
	down := r.copy(client, origin, false)
	<-done
	r.end(nil)
	return Traffic{Up: up, Down: down}, r.err
}

type relaying struct {
	client, origin io.ReadWriteCloser
	start          time.Time
	last           atomic.Int64 // when an octet passed, as time since start

	mu    sync.Mutex
	timer *time.Timer
	ended bool
	err   error
}

// end closes both ends, once, and keeps the first reason.
func (r *relaying) end(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended, r.err = true, reason
	r.timer.Stop()
	_, _ = r.client.Close(), r.origin.Close()
}

func (r *relaying) watch(idle time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(idle, func() {
		left := idle - (time.Since(r.start) - time.Duration(r.last.Load()))
		if left <= 0 {
			r.end(ErrIdle)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.ended {
			r.timer.Reset(left)
		}
	})
}

// copy moves octets from src to dst until src ends.
func (r *relaying) copy(dst io.Writer, src io.Reader, fromClient bool) int64 {
	var sip [sipSize]byte
	var large *[copyBufferSize]byte
	defer func() {
		if large != nil {
			putBuffer(large)
		}
	}()
	var total int64
	buf := sip[:]
	for {
		n, err := src.Read(buf)
		if n > 0 {
			r.last.Store(int64(time.Since(r.start)))
			m, werr := dst.Write(buf[:n])
			total += int64(m)
			if werr != nil {
				r.end(&relayError{fromClient: fromClient, writing: true, err: werr})
				return total
			}
		}
		if err == io.EOF {
			if closeWrite(dst) != nil {
				r.end(nil)
			}
			return total
		}
		if err != nil {
			r.end(&relayError{fromClient: fromClient, err: err})
			return total
		}
		switch {
		case large == nil && n == len(buf):
			large = getBuffer()
			buf = large[:]
		case large != nil && n < len(buf):
			putBuffer(large)
			large, buf = nil, sip[:]
		}
	}
}

// relayError says at which end a relay failed.
type relayError struct {
	fromClient bool // the direction: octets from the client towards the origin
	writing    bool
	err        error
}

// byClient tells whether the client's end failed.
func (e *relayError) byClient() bool { return e.fromClient != e.writing }

func (e *relayError) Error() string {
	end, doing := "origin", "reading from"
	if e.byClient() {
		end = "client"
	}
	if e.writing {
		doing = "writing to"
	}
	return fmt.Sprintf("%s the %s: %v", doing, end, e.err)
}

func (e *relayError) Unwrap() error { return e.err }

// relayKind finds the kind of what ended a relay.
func relayKind(err error) Kind {
	if e, ok := errors.AsType[*relayError](err); ok && !e.byClient() {
		return KindIncomplete
	}
	if errors.Is(err, ErrIdle) {
		return KindStalled
	}
	return KindClientGone
}
