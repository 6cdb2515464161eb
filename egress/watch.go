package egress

import (
	"sync"
	"time"
)

const (
	// rateWindow is over what time a rate is averaged: a crawl has bursts and pauses. It is the least grace as well.
	rateWindow = time.Minute
	// rateTick is how late a rate that is too low may be noticed.
	rateTick = rateWindow / 4
	// maxOctets is the most that is counted in a window: so many seconds are no overflow.
	maxOctets = 1 << 32
)

// party is one end of an exchange.
type party uint8

const (
	nobody party = iota // a connection or an answer is awaited
	theClient
	theOrigin
)

// watch notices that an exchange stands still or creeps. Time counts for whoever's turn it is: the client's to send or to take
// octets, or the origin's. It calls ended, once, when
//
//   - a turn that is not the client's lasts for idle (how long a client may be idle is the server's business);
//   - all turns of one party together last for rateWindow, and fewer octets than rate in that time have passed, or are on
//     their way;
//   - the deadline of the request's body is over.
//
// The methods are safe for concurrent use. A watch that was not started notices nothing.
type watch struct {
	idle  time.Duration
	ended func(cause error)

	mu       sync.Mutex
	rate     int64       // octets a second; 0 for any
	timer    *time.Timer // nil while it does not run
	deadline time.Time   // zero for none
	now      party       // whose turn it is
	since    time.Time   // when the turn began
	spent    [3]time.Duration
	octets   int64 // in this window
}

// start lets it run. A new window begins with the turn of p.
func (w *watch) start(p party, rate int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rate, w.now, w.since = rate, p, time.Now()
	w.spent, w.octets = [3]time.Duration{}, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(w.left(w.since), w.check)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// turn makes it the turn of p, which has n octets to take on from the other party.
func (w *watch) turn(p party, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(p, n)
}

// touch notes n octets that passed beside the turns.
func (w *watch) touch(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(w.now, n)
}

func (w *watch) pass(p party, n int) {
	now := time.Now()
	spent := &w.spent[w.now]
	*spent += now.Sub(w.since)
	w.octets = min(w.octets+int64(n), maxOctets)
	if *spent >= rateWindow && float64(w.octets) >= float64(w.rate)*spent.Seconds() {
		w.spent, w.octets = [3]time.Duration{}, int64(n)
	}
	w.now, w.since = p, now
}

// setDeadline sets the deadline of the request's body; the zero time lifts it.
func (w *watch) setDeadline(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline = at; w.timer != nil {
		w.timer.Reset(w.left(time.Now()))
	}
}

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	now := time.Now()
	if cause := w.fault(now); cause != nil {
		w.timer = nil
		w.ended(cause)
		return
	}
	w.timer.Reset(w.left(now))
}

// fault is what is wrong at the given time, if anything is.
func (w *watch) fault(now time.Time) error {
	switch {
	case !w.deadline.IsZero() && !now.Before(w.deadline):
		return errBodyTimeout
	case w.now != theClient && !now.Before(w.since.Add(w.idle)):
		return errStalled
	case w.now == nobody || w.rate == 0 || now.Before(w.slow()):
		return nil
	case w.now == theClient:
		return errSlowClient
	default:
		return errSlowOrigin
	}
}

// slow is when the turn will have lasted for too long for the octets of the window.
func (w *watch) slow() time.Time {
	least := time.Duration(w.octets) * time.Second / time.Duration(w.rate)
	return w.since.Add(max(rateWindow, least) - w.spent[w.now])
}

// left is how long nothing can be wrong, as far as can be known: the next turn may have little time left in its window.
func (w *watch) left(now time.Time) time.Duration {
	left := w.idle
	if w.now != theClient {
		left = w.since.Add(w.idle).Sub(now)
	}
	if !w.deadline.IsZero() {
		left = min(left, w.deadline.Sub(now))
	}
	if w.rate > 0 {
		left = min(left, rateTick)
		if w.now != nobody {
			left = min(left, w.slow().Sub(now))
		}
	}
	return max(left, 0)
}
