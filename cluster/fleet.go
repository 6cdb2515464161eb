package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
)

// Local is the gateway itself. Its methods are safe for concurrent use.
type Local interface {
	// Orders returns the orders in force, with the lifts.
	Orders() enforce.StopSet
	// Merge takes orders of other gateways, and returns how many requests each of them ended.
	Merge(other enforce.StopSet) (ended map[string]int)
	// Act does an action of another gateway, and returns how many things it ended.
	Act(ctx context.Context, a Action) (ended int, err error)
	// Lost reports that actions of other gateways were lost.
	Lost()
	// LastAction and KeepAction keep the id of the last action over a restart.
	LastAction() string
	KeepAction(id string)
}

// Config configures a [Fleet].
type Config struct {
	// Link is to the Redis of the fleet. It outlives the Fleet.
	Link  *link.Link
	Local Local
	// Failed is called with an error of reading or acting.
	Failed func(error)
	// Unread is called when requests stop waiting for the orders in Redis, see [Fleet.AwaitOrders].
	Unread func()
}

// State is the state of the fleet, as far as this gateway knows.
type State struct {
	Up       bool  // Redis answers
	Gateways int   // how many are alive
	Version  int64 // of the orders
	Pending  int   // orders and lifts that are not in Redis yet
	Queued   int   // actions of this gateway that wait for Redis
	Unlisted int   // live gateways that are not in the list
}

const (
	// poll is how often a gateway looks for orders.
	poll = 500 * time.Millisecond
	// waitFor is how long to wait for answers.
	waitFor  = 3 * time.Second
	lookPace = 20 * time.Millisecond
	// maxDone bounds the latest orders that a gateway acknowledges in its note. doneFor is how long it
	// does so: nobody waits longer.
	maxDone = 256
	doneFor = 2 * waitFor
	// membershipEvery is how often a gateway reads the notes of the others.
	membershipEvery = 10 * time.Second
)

// Fleet is one gateway's membership in a fleet. It is safe for concurrent use.
type Fleet struct {
	config  Config
	link    *link.Link
	actions *rate.Limiter

	syncMu  sync.Mutex  // one exchange at a time
	seen    string      // the last version in Redis that was merged completely; guarded by syncMu
	whole   time.Time   // when all ids were last compared; guarded by syncMu
	met     time.Time   // when the others' notes were last read; guarded by syncMu
	joined  bool        // actions are followed; guarded by syncMu
	changed atomic.Bool // orders have been given or lifted here since

	did []string // the ids of the latest actions of others; only for act

	gate     gate
	read     atomic.Int64 // when the orders in Redis were last read, in ns since 1970
	endWatch func()

	mu         sync.Mutex // guards the fields below
	note       note
	expect     int
	recent     []string // the keys of note.Done, oldest first
	queued     []Action // wait for Redis
	state      State
	shared     enforce.StopSet // the orders in Redis at the last exchange
	membership membership

	look, lookActions chan struct{}
	stop              context.CancelFunc
	tasks             sync.WaitGroup
}

// New joins a fleet. Call Close after use.
func New(c Config, self Self, expect int) *Fleet {
	ctx, stop := context.WithCancel(context.Background())
	if c.Unread == nil {
		c.Unread = func() {}
	}
	f := &Fleet{
		config: c, link: c.Link, stop: stop,
		actions: rate.NewLimiter(actionRate, actionRate), note: note{Self: self, Done: map[string]ack{}}, expect: expect,
		look: make(chan struct{}, 1), lookActions: make(chan struct{}, 1),
	}
	f.changed.Store(true)
	f.gate.shut(readWithin, c.Unread)
	f.link.Announce(f.say)
	f.endWatch = f.link.Watch(f.watch)
	f.tasks.Go(func() { often(ctx, f.look, func(ctx context.Context) { f.sync(ctx) }) })
	f.tasks.Go(func() { often(ctx, f.lookActions, f.act) })
	f.tasks.Go(func() { f.link.Listen(ctx, f.channel(), func(string) { f.wake() }) })
	return f
}

// say sets the note for the next heartbeat.
func (f *Fleet) say() string {
	now, held := f.link.Now(), len(f.config.Local.Orders().Held)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note.Since, f.note.Orders = cmp.Or(f.note.Since, now), held
	f.forget()
	return text(f.note)
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

// Describe changes what the gateway says about itself, and how many gateways there should be at
// least.
func (f *Fleet) Describe(self Self, expect int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note.Self, f.expect = self, expect
}

// Close leaves the fleet.
func (f *Fleet) Close() error {
	f.stop()
	f.endWatch()
	f.tasks.Wait()
	f.gate.open()
	f.mu.Lock()
	f.note.Left = true
	f.mu.Unlock()
	if err := f.link.Leave(context.Background()); err != nil {
		return fmt.Errorf("leaving the fleet: %w", err)
	}
	return nil
}

func (f *Fleet) channel() string { return f.link.Channel(f.link.Key("look")) }

// wake makes the gateway look for orders and actions now.
func (f *Fleet) wake() {
	for _, c := range []chan struct{}{f.look, f.lookActions} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// often calls f every half second, and when look says so.
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

var errAway = errors.New("redis is away")

// sync exchanges orders, and reports whether Redis answered. A Redis that answers a heartbeat is
// asked twice: one call may be late.
func (f *Fleet) sync(ctx context.Context) bool {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	err := f.syncOnce(ctx)
	if err != nil {
		if err = f.link.Beat(ctx); err == nil {
			err = f.syncOnce(ctx)
		}
	}
	if ctx.Err() != nil {
		return false
	}
	f.setUp(err)
	return err == nil
}

func (f *Fleet) syncOnce(ctx context.Context) error {
	if !f.link.State().Up {
		return errAway
	}
	c := f.link.Client()
	if err := errors.Join(f.skipToEnd(ctx, c), f.exchange(ctx, c)); err != nil {
		return err
	}
	f.read.Store(time.Now().UnixNano())
	f.gate.open()
	if time.Since(f.met) > membershipEvery {
		f.met = time.Now()
		return f.readMembership(ctx, c, true)
	}
	return nil
}

// answers waits for acknowledgements of an order.
func (f *Fleet) answers(ctx context.Context, id string) Acknowledgements {
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	up := f.sync(ctx)
	tick := time.NewTicker(lookPace)
	defer tick.Stop()
	var missing []string
	for wait, unlisted := up, 1; ; {
		if c := f.link.Client(); wait && c != nil {
			if unlisted > 0 {
				wait = f.readMembership(ctx, c, false) == nil
			}
			if len(missing) > 0 {
				wait = wait && f.readAnswers(ctx, c, id, missing) == nil
			}
		}
		r, now, offset, fresh := f.others()
		var list []Applied
		list, missing = r.applied(id, now, offset, fresh)
		unlisted = f.unlisted(len(list))
		if !wait || unlisted == 0 && len(missing) == 0 || ctx.Err() != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			return Acknowledgements{Gateways: list, Unlisted: unlisted, Expected: f.expect, Pending: !up}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Gateways lists the fleet.
func (f *Fleet) Gateways(ctx context.Context) ([]Gateway, State) {
	if f.link.State().Up {
		if err := f.readMembership(ctx, f.link.Client(), true); err != nil && ctx.Err() == nil {
			f.setUp(err)
		}
	}
	r, _, offset, _ := f.others()
	list, state := r.list(offset), f.State()
	state.Unlisted = f.unlisted(len(list)) + max(len(list)-maxProcesses, 0)
	return list[:min(len(list), maxProcesses)], state
}

// unlisted returns how many live gateways were not read, because there are more than are read at
// once.
func (f *Fleet) unlisted(listed int) int {
	if alive := f.link.State().Gateways; alive > maxProcesses {
		return max(alive-listed, 0)
	}
	return 0
}

// State returns the state of the fleet, as far as this gateway knows. Without a fleet it is zero.
func (f *Fleet) State() State {
	if f == nil {
		return State{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state
	s.Queued = len(f.queued)
	return s
}

// others returns the membership, with the current note of this gateway, and Redis's clock: the
// time, and how far the local clock is ahead. fresh says that Redis has only just come back.
func (f *Fleet) others() (r membership, now int64, offset time.Duration, fresh bool) {
	now, held := f.link.Now(), len(f.config.Local.Orders().Held)
	f.mu.Lock()
	defer f.mu.Unlock()
	self := process{f.note, now}
	self.Orders = held
	self.Done = maps.Clone(f.note.Done)
	r = f.membership.with(membership{f.link.Process: self}, now)
	return r, now, time.Since(time.UnixMilli(now)), time.Since(f.link.State().Since) < link.AliveFor
}

// ack acknowledges an order with a heartbeat.
func (f *Fleet) ack(id string, ended int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.note.Done[id]; !known {
		f.recent = append(f.recent, id)
	}
	f.note.Done[id] = ack{ended, time.Now().UTC()}
	f.forget()
	f.link.BeatSoon()
}

// forget forgets acknowledgements that nobody waits for, under the lock.
func (f *Fleet) forget() {
	for len(f.recent) > 0 && (len(f.recent) > maxDone || time.Since(f.note.Done[f.recent[0]].At) > doneFor) {
		delete(f.note.Done, f.recent[0])
		f.recent = f.recent[1:]
	}
}

// setUp records whether Redis answers, and why not.
func (f *Fleet) setUp(why error) {
	mine, redis := f.config.Local.Orders(), f.link.State()
	f.mu.Lock()
	f.state.Up, f.state.Gateways = why == nil, redis.Gateways
	if why != nil {
		f.state.Pending = unsent(mine.Since(f.shared), enforce.StopSet{}, time.Now()).size()
	}
	f.mu.Unlock()
	if why != nil && redis.Up { // otherwise the link has reported it
		f.config.Failed(fmt.Errorf("orders do not reach the other gateways: %w", why))
	}
}
