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
	// Link is to the Redis of the fleet. It outlives the Fleet.
	Link  *link.Link
	Local Local
	// Failed is told what could not be read or done.
	Failed func(error)
	// Unread is told that requests no longer wait for the orders in Redis, see [Fleet.AwaitOrders].
	Unread func()
}

// State is how the fleet stands, as far as this gateway knows.
type State struct {
	Up       bool  // Redis answers
	Gateways int   // how many are alive
	Version  int64 // of the orders
	Pending  int   // orders and lifts that are not in Redis yet
	Queued   int   // actions of this gateway that wait for Redis
	Unlisted int   // gateways that are not listed
}

const (
	// poll is how often a gateway looks for orders.
	poll = 500 * time.Millisecond
	// waitFor is how long answers are waited for.
	waitFor  = 3 * time.Second
	lookPace = 20 * time.Millisecond
	// maxDone bounds what a gateway tells of its latest orders, and doneFor for how long: nobody waits
	// longer.
	maxDone = 256
	doneFor = 2 * waitFor
	// membershipEvery is how often a gateway reads what the others say of themselves.
	membershipEvery = 10 * time.Second
)

// Fleet is the place of one gateway in it. It is safe for concurrent use.
type Fleet struct {
	config  Config
	link    *link.Link
	actions *rate.Limiter

	syncMu  sync.Mutex  // one exchange at a time
	seen    string      // the version in Redis that all was merged of; guarded by syncMu
	whole   time.Time   // when all ids were compared last; guarded by syncMu
	met     time.Time   // when the others were read last; guarded by syncMu
	joined  bool        // actions are followed; guarded by syncMu
	changed atomic.Bool // orders were given or lifted here since

	did []string // the ids of the latest actions of others; only for act

	gate     gate
	read     atomic.Int64 // when the orders in Redis were read last, in ns since 1970
	endWatch func()

	mu         sync.Mutex // guards all below
	note       note
	expect     int
	recent     []string // the keys of note.Done, oldest first
	queued     []Action // wait for Redis
	state      State
	shared     enforce.StopSet // what Redis had when it was seen last
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

// say is the note for the next heartbeat.
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

// Describe changes what the gateway says of itself, and how many gateways there should be at least.
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

// answers waits for the acknowledgements of an order.
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

// unlisted is how many gateways are alive beside those that were read, if they are more than are
// read at once.
func (f *Fleet) unlisted(listed int) int {
	if alive := f.link.State().Gateways; alive > maxProcesses {
		return max(alive-listed, 0)
	}
	return 0
}

// State returns how the fleet stands, as far as this gateway knows. Without a fleet it is zero.
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

// others is the membership with this gateway as it is now, and Redis's clock: now, and by how much
// the local one is ahead. fresh says that Redis has been back for a moment only.
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
	if why != nil && redis.Up { // else the link has said it
		f.config.Failed(fmt.Errorf("orders do not reach the other gateways: %w", why))
	}
}
