package budget

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// idleFor is how long a gateway keeps an unused slice.
	idleFor = time.Minute
	// maxHosts is the most hosts of an agent for which a gateway holds slices. For one more, it
	// returns the slice of another host and draws it again when needed.
	maxHosts = 50_000
	// retryAfter is how long a client should wait if the pool does not answer.
	retryAfter = 5 * time.Second
)

// The names of an agent's limits.
const (
	Requests = "requests"
	Bytes    = "bytes"
	PerHost  = "per_host"
)

// Pool counts what agents may still use. Its methods are safe for concurrent use.
type Pool interface {
	// Draw answers an ask. After an error, the pool may or may not have carried it out.
	Draw(ctx context.Context, a Ask) (Grant, error)
	// Gateways is the number of gateways that draw from the pool.
	Gateways() int
	// Patience is how long the other gateways need to return their slices when the pool is empty.
	Patience() time.Duration
}

// SpentError says why the budget does not allow a request.
type SpentError struct {
	What  string // [Requests], [Bytes] or [PerHost]
	Limit int64
	Wait  time.Duration // until the next day, or until the pool may answer again
	Err   error         // why the pool does not answer; nil if the limit has been reached
}

func (e *SpentError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the counter of %s cannot be reached: %v", e.What, e.Err)
	}
	return fmt.Sprintf("%s: %d a day are used up", e.What, e.Limit)
}

func (e *SpentError) Unwrap() error { return e.Err }

// Keeper keeps the budgets of agents at one gateway. It is safe for concurrent use.
type Keeper struct {
	pool Pool

	mu       sync.Mutex
	accounts map[string]*account
	closed   bool
	end      chan struct{}
	tasks    sync.WaitGroup
}

// New makes a keeper that draws from a pool. Close it after use.
func New(pool Pool) *Keeper {
	k := &Keeper{pool: pool, accounts: make(map[string]*account), end: make(chan struct{})}
	k.tasks.Go(k.sweep)
	return k
}

var errClosed = errors.New("the gateway stops")

// Close returns all slices to the pool, if the pool answers. It refuses requests that come later.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	close(k.end)
	for _, a := range k.accounts {
		for m := range a.meters {
			k.giveBack(m)
		}
	}
	k.mu.Unlock()
	k.tasks.Wait()
}

// Receipt records what a request has used. The zero value is for a request without a budget.
type Receipt struct {
	keeper         *Keeper
	requests, host *meter
	// Left is how many requests the agent has left today, as far as this gateway knows. It means
	// something only if Limited is true.
	Left    int64
	Limited bool
}

// Take uses one request to a host from an agent's budget. It waits for the pool if the gateway
// holds nothing. The error is a [SpentError] or the cause of ctx.
func (k *Keeper) Take(ctx context.Context, agent string, l *Allowance, host string) (r Receipt, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return r, &SpentError{What: Requests, Wait: retryAfter, Err: errClosed}
	}
	for {
		now := time.Now()
		a := k.account(agent, l, now)
		r = Receipt{keeper: k, requests: a.requests, host: k.host(a, host)}
		short := firstShort(r.requests, a.bytes, r.host)
		if short == nil {
			r.use(1)
			if r.Limited = r.requests != nil; r.Limited {
				r.Left = r.requests.remaining(l.Requests)
			}
			return r, nil
		}
		if err := k.wait(ctx, short, now); err != nil {
			r.each(k.tidy) // the draws for this request
			return Receipt{}, err
		}
	}
}

// firstShort returns the first meter that has nothing left to use, or nil.
func firstShort(meters ...*meter) *meter {
	for _, m := range meters {
		if m != nil && m.usable() <= 0 {
			return m
		}
	}
	return nil
}

// use uses n and draws ahead. A negative n undoes an earlier use.
func (r Receipt) use(n int64) { r.each(func(m *meter) { r.keeper.use(m, n) }) }

func (r Receipt) each(do func(*meter)) {
	for _, m := range [...]*meter{r.requests, r.host} {
		if m != nil {
			do(m)
		}
	}
}

func (k *Keeper) use(m *meter, n int64) {
	m.held, m.idle, m.dry = m.held-n, false, m.dry && n > 0
	if n < 0 {
		signal(m.gave)
	}
	k.tidy(m)
}

// Back undoes [Keeper.Take] for a request that was not sent.
func (r Receipt) Back() {
	if r.keeper == nil {
		return
	}
	r.keeper.mu.Lock()
	defer r.keeper.mu.Unlock()
	r.use(-1)
}

// Count counts n bytes that have been transferred.
func (k *Keeper) Count(agent string, l *Allowance, n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.current(agent, l, time.Now()).bytes; m != nil && n > 0 {
		k.use(m, n)
	}
}

// Pass counts n bytes that have been transferred and waits until more are allowed. Its errors are
// those of [Keeper.Take].
func (k *Keeper) Pass(ctx context.Context, agent string, l *Allowance, n int64) error {
	k.Count(agent, l, n)
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		now := time.Now()
		m := firstShort(k.current(agent, l, now).bytes)
		if m == nil {
			return nil
		}
		if err := k.wait(ctx, m, now); err != nil {
			return err
		}
		k.tidy(m)
	}
}

// wait waits for a draw, without the lock.
func (k *Keeper) wait(ctx context.Context, m *meter, now time.Time) error {
	spent := &SpentError{What: m.what, Limit: m.limit, Wait: m.account.day.ends.Sub(now)}
	if m.spent() {
		return spent
	}
	spent.Wait, spent.Err = retryAfter, errClosed
	if k.closed {
		return spent
	}
	d := k.draw(m)
	m.waiting++
	k.mu.Unlock()
	var err error
	select {
	case <-d.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	k.mu.Lock()
	m.waiting--
	if err == nil && d.err != nil {
		spent.Err, err = d.err, spent
	}
	if err != nil {
		k.tidy(m)
	}
	return err
}

// tidy draws ahead, and returns what another gateway needs more.
func (k *Keeper) tidy(m *meter) {
	if !k.closed && m.drawing == nil && (m.over() || m.low(k.pool.Gateways())) {
		k.draw(m)
	}
}

// giveBack returns everything that a meter holds, and reports its debt.
func (k *Keeper) giveBack(m *meter) {
	if m.held != 0 || m.drawing != nil {
		m.release = true
		k.draw(m)
	}
}

// draw starts a draw unless one is in progress.
func (k *Keeper) draw(m *meter) *draw {
	if m.drawing == nil {
		d := &draw{done: make(chan struct{})}
		m.drawing = d
		k.tasks.Go(func() { k.run(m, d) })
	}
	return m.drawing
}

// run draws. If the pool is empty, it asks again whenever another gateway returns something, until
// the pool's patience is over.
func (k *Keeper) run(m *meter, d *draw) {
	patience := k.pool.Patience()
	late := time.NewTimer(patience)
	defer late.Stop()
	for first, last := true, patience == 0; ; first = false {
		k.mu.Lock()
		select {
		case <-m.gave: // before this ask
		default:
		}
		ask := m.ask(k.pool.Gateways())
		ask.Tell = first
		k.mu.Unlock()
		answer, err := k.pool.Draw(context.Background(), ask)
		k.mu.Lock()
		if err != nil {
			m.failed(ask, err)
		} else {
			m.answered(ask, answer)
		}
		if err != nil || last || m.usable() > 0 || m.waiting == 0 || ask.Want == 0 || k.closed {
			m.dry = err == nil && last && m.usable() <= 0 && m.left <= 0 && len(m.gave) == 0
			d.err, m.drawing = err, nil
			close(d.done)
			if err == nil && m.over() {
				k.draw(m)
			}
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		select {
		case <-m.gave:
		case <-late.C:
			last = true
		case <-k.end:
			last = true
		}
	}
}

// sweep returns slices that have been idle, and forgets days that are over.
func (k *Keeper) sweep() {
	tick := time.NewTicker(idleFor)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.end:
			return
		}
		k.mu.Lock()
		for name, a := range k.accounts {
			if !a.day.holds(time.Now()) {
				delete(k.accounts, name)
				continue
			}
			for m := range a.meters {
				switch {
				case !m.idle || m.uncounted: // the pool has no counter to return it to
				case m.held != 0 || m.drawing != nil:
					k.giveBack(m)
				case m.what == PerHost:
					a.forget(m)
				}
				m.idle = true
			}
		}
		k.mu.Unlock()
	}
}

// Needed tells the keeper that another gateway has found a counter of the pool empty.
func (k *Keeper) Needed(agent, name string) {
	k.tell(agent, name, func(m *meter) {
		m.tight = true
		k.tidy(m)
	})
}

// Returned tells the keeper that another gateway has returned something to a counter. An empty name
// stands for all counters.
func (k *Keeper) Returned(agent, name string) {
	k.tell(agent, name, func(m *meter) {
		m.dry = false
		signal(m.gave)
	})
}

// Forgot tells the keeper that the pool may have lost the counters of an agent. The keeper then
// reports all that it knows, because the gateway that draws next may know less. It skips counters
// that it has read since the loss: they have the given memory. An empty agent stands for all agents.
func (k *Keeper) Forgot(agent string, memory int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var unsure []*meter
	for _, a := range k.accounts {
		if agent != "" && agent != a.agent {
			continue
		}
		for m := range a.meters {
			if m.memory != 0 && m.memory != memory && !m.uncounted {
				m.unsure = true
				unsure = append(unsure, m)
			}
		}
	}
	if len(unsure) > 0 && !k.closed {
		k.tasks.Go(func() { k.report(unsure) })
	}
}

// report draws from one counter after the other, because there may be very many. A draw that was in
// progress may have come before the loss; then another one follows. If the pool does not answer,
// the gateways learn of its return later.
func (k *Keeper) report(unsure []*meter) {
	for len(unsure) > 0 {
		k.mu.Lock()
		m := unsure[0]
		if k.closed || !m.unsure {
			k.mu.Unlock()
			unsure = unsure[1:]
			continue
		}
		d := k.draw(m)
		k.mu.Unlock()
		if <-d.done; d.err != nil {
			return
		}
	}
}

func (k *Keeper) tell(agent, name string, do func(*meter)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.accounts {
		switch {
		case name == "":
			a.meters(func(m *meter) bool { do(m); return true })
		case a.agent != agent:
		case name == Requests && a.requests != nil:
			do(a.requests)
		case name == Bytes && a.bytes != nil:
			do(a.bytes)
		default:
			if m := a.hosts[strings.TrimPrefix(name, hostPrefix)]; m != nil {
				do(m)
			}
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
