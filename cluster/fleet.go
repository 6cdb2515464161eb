package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/redislink"
)

// Local is the gateway itself. Its methods are safe for concurrent use.
type Local interface {
	// Orders are those that hold, with the lifts.
	Orders() enforce.StopSet
	// Merge takes orders of other gateways, and returns how many requests each of them ended.
	Merge(other enforce.StopSet) (ended map[string]int)
	// Act does an action of another gateway, and returns how many things it ended.
	Act(ctx context.Context, a Action) (ended int, err error)
	// Lost says that actions of other gateways were lost.
	Lost()
	// LastAction and KeepAction keep the id of the last action over a restart.
	LastAction() string
	KeepAction(id string)
}

// Config says where the fleet meets.
type Config struct {
	// URL is the server's, as in package redislink. Required.
	URL string
	// Prefix tells several fleets in one Redis apart. Default: crawlgate.
	Prefix string
	Local  Local
	// Changed is told when Redis is away, with the reason, and when it is back, once each time.
	Changed func(up bool, why error)
	// Failed is told what could not be read or done.
	Failed func(error)
	// Counted is told the state with each heartbeat.
	Counted func(State)
}

// State is how the fleet stands, as far as this gateway knows.
type State struct {
	Up       bool  // Redis answers
	Gateways int   // how many are alive
	Version  int64 // of the orders
	Pending  int   // orders and lifts that are not in Redis yet
}

const (
	// poll is how often a gateway reports that it is alive and looks for orders.
	poll = 500 * time.Millisecond
	// timeout bounds every call.
	timeout = 500 * time.Millisecond
	// aliveFor is how long after a heartbeat a gateway counts as alive.
	aliveFor = 5 * time.Second
	// knownFor is how long a gateway that fell silent belongs to the fleet: it may be cut off, and
	// crawl. One that shuts down cleanly leaves at once.
	knownFor = time.Hour
	// waitFor is how long answers are waited for.
	waitFor  = 3 * time.Second
	lookPace = 20 * time.Millisecond
	// maxDone bounds what a gateway tells of its latest orders, and doneFor for how long.
	maxDone = 256
	doneFor = time.Minute
	// membershipEvery is how many heartbeats there are between two looks at the other gateways.
	membershipEvery = 20
)

// Fleet is the place of one gateway in it. It is safe for concurrent use.
type Fleet struct {
	config  Config
	link    *redislink.Link
	process string // random, so that two of one name are not taken for one
	actions *rate.Limiter

	syncMu      sync.Mutex  // one exchange at a time
	seen        string      // the version in Redis that all was merged of; guarded by syncMu
	heartbeats  int         // guarded by syncMu
	joined      bool        // actions are followed; guarded by syncMu
	changed     atomic.Bool // orders were given or lifted here since
	heartbeatMu sync.Mutex  // heartbeats arrive in their order

	mu         sync.Mutex // guards all below
	note       note
	expect     int
	recent     []string // the keys of note.Done, oldest first
	state      State
	since      time.Time // when Redis came back
	downSaid   bool      // that Redis is away
	redis      ids       // as of the last look
	clock      clock
	membership membership

	look, lookActions chan struct{}
	stop              context.CancelFunc
	tasks             sync.WaitGroup
}

// clock is Redis's, as of the last heartbeat.
type clock struct {
	redis int64 // ms
	local time.Time
}

// New joins a fleet, and connects in the background. The error is about the configuration only.
// Call Close after use.
func New(c Config, self Self, expect int) (*Fleet, error) {
	option, err := redislink.Options(c.URL, timeout)
	if err != nil {
		return nil, err
	}
	option.Dialer.KeepAlive = time.Second
	c.Prefix = cmp.Or(c.Prefix, "crawlgate")
	ctx, stop := context.WithCancel(context.Background())
	f := &Fleet{
		config: c, link: redislink.New(option), process: rand.Text(), stop: stop,
		actions: rate.NewLimiter(actionRate, actionRate), note: note{Self: self, Done: map[string]ack{}}, expect: expect,
		look: make(chan struct{}, 1), lookActions: make(chan struct{}, 1),
	}
	f.changed.Store(true)
	f.tasks.Go(func() { often(ctx, f.look, func(ctx context.Context) { f.sync(ctx) }) })
	f.tasks.Go(func() { often(ctx, f.lookActions, f.act) })
	f.tasks.Go(func() { f.link.Listen(ctx, f.channel(), poll, func(string) { f.wake() }) })
	return f, nil
}

// Given announces an order that was given or lifted here to all gateways. ended is how many
// requests it ended. id is the order's, or [LiftOf] it.
func (f *Fleet) Given(ctx context.Context, id string, ended int) Acknowledgements {
	if f == nil {
		return Acknowledgements{}
	}
	f.ack(id, ended)
	f.changed.Store(true)
	return f.answers(ctx, id)
}

// Describe changes what the gateway says of itself, and how many gateways there should be at least.
func (f *Fleet) Describe(self Self, expect int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note.Self, f.expect = self, expect
}

// Close leaves the fleet.
func (f *Fleet) Close() error {
	f.stop()
	f.tasks.Wait()
	defer f.link.Close()
	f.mu.Lock()
	f.note.Left = true
	f.mu.Unlock()
	if c := f.link.Client(); c != nil && f.up() {
		if err := f.heartbeat(context.Background(), c); err != nil {
			return fmt.Errorf("leaving the fleet: %w", err)
		}
	}
	return nil
}

func (f *Fleet) key(name string) string { return "{" + f.config.Prefix + "}:fleet:" + name }
func (f *Fleet) channel() string        { return f.link.Channel(f.key("look")) }

// wake has the orders and actions looked for now.
func (f *Fleet) wake() {
	for _, c := range []chan struct{}{f.look, f.lookActions} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// often calls f twice a second, and when look says so.
func often(ctx context.Context, look <-chan struct{}, f func(context.Context)) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		f(ctx)
		select {
		case <-tick.C:
		case <-look:
		case <-ctx.Done():
		}
	}
}

// sync sends a heartbeat and exchanges orders. It reports whether Redis answered. A Redis that
// did so until now is asked twice: one call may be late.
func (f *Fleet) sync(ctx context.Context) bool {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	wasUp := f.up()
	err := f.syncOnce(ctx)
	if err != nil && wasUp && ctx.Err() == nil {
		err = f.syncOnce(ctx)
	}
	if ctx.Err() != nil {
		return false
	}
	f.setUp(err == nil, err)
	return err == nil
}

func (f *Fleet) syncOnce(ctx context.Context) error {
	c, err := f.link.Connect()
	if err != nil {
		return fmt.Errorf("connecting to redis: %w", err)
	}
	if err := errors.Join(f.skipToEnd(ctx, c), f.exchange(ctx, c)); err != nil {
		return err
	}
	if err := f.heartbeat(ctx, c); err != nil {
		return err
	}
	if f.heartbeats++; f.heartbeats%membershipEvery == 1 {
		return f.readMembership(ctx, c)
	}
	return nil
}

// answers waits for the acknowledgements of an order.
func (f *Fleet) answers(ctx context.Context, id string) Acknowledgements {
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	up := f.sync(ctx)
	tick := time.NewTicker(lookPace)
	defer tick.Stop()
	for wait := up; ; {
		if c := f.link.Client(); wait && c != nil {
			wait = f.readMembership(ctx, c) == nil
		}
		r, now, offset, fresh := f.others()
		list, missing := r.applied(id, now, offset, fresh)
		wait = wait && missing && ctx.Err() == nil
		if !wait {
			f.mu.Lock()
			defer f.mu.Unlock()
			return Acknowledgements{Gateways: list, Expected: f.expect, Pending: !up}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Gateways lists the fleet.
func (f *Fleet) Gateways(ctx context.Context) ([]Gateway, State) {
	if c := f.link.Client(); c != nil && f.up() {
		if err := f.readMembership(ctx, c); err != nil && ctx.Err() == nil {
			f.setUp(false, err)
		}
	}
	r, _, offset, _ := f.others()
	f.mu.Lock()
	defer f.mu.Unlock()
	return r.list(offset), f.state
}

// others is the membership with this gateway as it is now, and Redis's clock: now, and by how much
// the local one is ahead. fresh says that Redis has been back for a moment only.
func (f *Fleet) others() (r membership, now int64, offset time.Duration, fresh bool) {
	now, held := f.redisNow(), len(f.config.Local.Orders().Held)
	f.mu.Lock()
	defer f.mu.Unlock()
	self := process{f.note, now}
	self.Orders = held
	self.Done = maps.Clone(f.note.Done)
	offset = f.clock.local.Sub(time.UnixMilli(f.clock.redis))
	return f.membership.with(membership{f.process: self}, now), now, offset, time.Since(f.since) < aliveFor
}

// redisNow is the time by Redis's clock in ms, 0 before the first heartbeat.
func (f *Fleet) redisNow() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock.redis == 0 {
		return 0
	}
	return f.clock.redis + time.Since(f.clock.local).Milliseconds()
}

func (f *Fleet) up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Up
}

// ack acknowledges an order with the next heartbeat.
func (f *Fleet) ack(id string, ended int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.note.Done[id]; !known {
		f.recent = append(f.recent, id)
	}
	f.note.Done[id] = ack{ended, time.Now().UTC()}
	for len(f.recent) > 0 && (len(f.recent) > maxDone || time.Since(f.note.Done[f.recent[0]].At) > doneFor) {
		delete(f.note.Done, f.recent[0])
		f.recent = f.recent[1:]
	}
}

// setUp records whether Redis answers, and why not.
func (f *Fleet) setUp(up bool, why error) {
	mine := f.config.Local.Orders()
	f.mu.Lock()
	news := f.state.Up != up || !up && !f.downSaid
	f.state.Up, f.downSaid = up, !up
	if up && news {
		f.since = time.Now()
	}
	if !up {
		f.state.Pending = pending(mine, f.redis, time.Now())
	}
	state := f.state
	f.mu.Unlock()
	if news {
		f.config.Changed(up, why)
	}
	f.config.Counted(state)
}
