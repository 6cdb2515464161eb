// Package link connects a gateway to a Redis or Valkey. The clocks, records and orders of a gateway
// that use the same server and prefix share one link: one client, one heartbeat, and one answer to
// whether Redis is up and how many gateways there are.
//
// Twice a second a link tells Redis that the gateway is alive. It has two sets of gateways, by the
// time of their last heartbeat, because a gateway may share only orders or only clocks:
//
//	{PREFIX}:fleet:gateways  zset  the gateways of the fleet
//	{PREFIX}:fleet:acks      hash  what each of them says of itself
//	{PREFIX}:fleet:clocks    zset  the gateways that share clocks
package link

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// Timeout bounds dialing and a heartbeat. It is also the default for other calls.
	Timeout = 500 * time.Millisecond
	// AliveFor is how long after a heartbeat a gateway counts as alive.
	AliveFor = missed * heartbeat
	// KnownFor is how long a silent gateway still belongs to the fleet, because it may be cut off and
	// still crawl. A gateway that shuts down cleanly leaves at once.
	KnownFor = time.Hour

	heartbeat = 500 * time.Millisecond
	missed    = 10 // heartbeats, after which a gateway is not counted
	// giveUp is how long a connection may be silent before another one replaces it. It spares a server
	// that is busy for a shorter time the work of a new connection.
	giveUp = 6 * time.Second
)

// Config configures a [Link].
type Config struct {
	// URL is the server's: redis://, rediss:// or unix://, with the parameters of rueidis.ParseURL.
	// Required.
	URL string
	// Prefix separates fleets that share a database. Default: crawlgate.
	Prefix string
	// Heartbeat is how often the gateway reports that it is alive, and checks whether Redis is back.
	// After ten missed heartbeats, others no longer count it. Default: 0.5 s.
	Heartbeat time.Duration
}

// State is what a link knows about Redis and the gateways. It is a value.
type State struct {
	Up        bool          // Redis answers
	Since     time.Time     // when Up last changed
	Why       error         // the last failure; nil if there was none
	Heard     time.Time     // when Redis last answered a heartbeat or, before that, when the link was made
	RoundTrip time.Duration // of that heartbeat
	Gateways  int           // of the fleet that were alive at that heartbeat
	// Clocks is how many gateways share clocks, or the last known number while Redis is away. After
	// Redis comes back, other gateways may follow later, and a gateway that begins to share may not
	// know all others yet. So the number does not fall within the time that a gateway counts as alive.
	Clocks int

	// Turns is the order of the gateways that share clocks. While Redis is away, and until the others
	// have had time to come back, it stays the same.
	Turns Turns

	clock int64 // Redis's clock at Heard, in ms since 1970; 0 if unknown
}

// Refused reports whether the last failure was an error from Redis, such as missing rights.
func (s State) Refused() bool {
	_, refused := errors.AsType[*rueidis.RedisError](s.Why)
	return refused
}

// Link is a client with a heartbeat. It is safe for concurrent use.
type Link struct {
	// Process is a random name of this process among the gateways. Prefix is the one of [Config].
	// Address is the server's, without credentials. They do not change.
	Process, Prefix, Address string

	every  time.Duration // between heartbeats
	option rueidis.ClientOption
	client atomic.Pointer[rueidis.Client]
	state  atomic.Pointer[State]

	connecting sync.Mutex // held while the client is made; guards the three below
	tried      time.Time  // when the last attempt to make it ended
	failed     error      // why
	closed     bool

	beating sync.Mutex // keeps heartbeats in order

	mu       sync.Mutex // guards the fields below, and changes of state
	joined   bool       // a heartbeat has had something to say
	note     func() string
	shares   bool      // this gateway shares clocks
	began    time.Time // when that began or ended
	watchers []*watcher

	wake  chan struct{}
	stop  context.CancelFunc
	tasks sync.WaitGroup
}

// watcher receives the states.
type watcher struct {
	f    func(s State, news bool)
	told State
}

// New makes a link, and connects in the background. Until that succeeds, Redis counts as away. The
// error is only about the configuration. Call Close after use.
func New(c Config) (*Link, error) {
	option, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &Link{
		Process: rand.Text(), Prefix: cmp.Or(c.Prefix, "crawlgate"), Address: strings.Join(option.InitAddress, ","),
		every: cmp.Or(c.Heartbeat, heartbeat), option: option, wake: make(chan struct{}, 1), stop: stop,
	}
	l.state.Store(&State{Since: time.Now(), Heard: time.Now()})
	l.tasks.Go(func() { l.live(ctx) })
	return l, nil
}

// Close sends a last heartbeat, which says that the gateway no longer shares clocks, and ends the
// connection. All users of the link must have ended.
func (l *Link) Close() {
	l.stop()
	l.tasks.Wait()
	if l.State().Up {
		_ = l.Beat(context.Background()) // others notice without it
	}
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.closed = true
	if c := l.Client(); c != nil {
		c.Close()
	}
}

// State returns what the link knows now. It does not wait for Redis.
func (l *Link) State() State { return *l.state.Load() }

// Client returns the client, or nil before the first connection. The next call may return a
// different client: do not keep it.
func (l *Link) Client() rueidis.Client {
	if c := l.client.Load(); c != nil {
		return *c
	}
	return nil
}

var errClosed = errors.New("the link to redis is closed")

// connect makes the client. This needs a reachable server; later the client reconnects by itself.
// Callers during an attempt share its result.
func (l *Link) connect() (rueidis.Client, error) {
	asked := time.Now()
	l.connecting.Lock()
	defer l.connecting.Unlock()
	switch c := l.Client(); {
	case c != nil:
		return c, nil
	case l.closed:
		return nil, errClosed
	case l.tried.After(asked):
		return nil, l.failed
	}
	c, err := rueidis.NewClient(l.option)
	if err != nil {
		l.tried, l.failed = time.Now(), fmt.Errorf("connecting to redis: %w", err)
		return nil, l.failed
	}
	l.client.Store(&c)
	return c, nil
}

// Channel returns the name of a channel of the link's database: Redis delivers a message to the
// subscribers of all databases.
func (l *Link) Channel(name string) string {
	if l.option.SelectDB == 0 {
		return name
	}
	return name + ":" + strconv.Itoa(l.option.SelectDB)
}

// Listen passes the messages of a channel to heard, which must not block, until ctx ends. It
// connects if necessary, and subscribes again whenever the connection has ended. After each
// subscription it passes an empty message, because other messages may have been missed.
func (l *Link) Listen(ctx context.Context, channel string, heard func(message string)) {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			heard("")
		}
	})
	for ctx.Err() == nil {
		if c, err := l.connect(); err == nil {
			// It ends with the connection, and always with an error.
			_ = c.Receive(hooked, c.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { heard(m.Message) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Announce makes this gateway a member of the fleet: each heartbeat carries its note, which must
// not be empty.
func (l *Link) Announce(note func() string) {
	l.mu.Lock()
	l.note, l.joined = note, true
	l.mu.Unlock()
	l.BeatSoon()
}

// Leave sends a last note. After that, the gateway is no longer counted.
func (l *Link) Leave(ctx context.Context) error {
	var err error
	if l.State().Up {
		err = l.beat(ctx, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note = nil
	return err
}

// ShareClocks counts this gateway among those that share clocks. least is the number to assume
// until the others have had time to be counted. 0 ends the sharing.
func (l *Link) ShareClocks(least int) {
	l.mu.Lock()
	l.shares, l.began, l.joined = least > 0, time.Now(), true
	next := l.State()
	next.Clocks = max(next.Clocks, least)
	l.state.Store(&next)
	l.mu.Unlock()
	l.BeatSoon()
}

// Watch calls f, which must not block, soon and then after each regular heartbeat, until the
// returned function is called. news is true for the first call, and whenever Redis went away or
// came back since the last one.
func (l *Link) Watch(f func(s State, news bool)) (end func()) {
	w := &watcher{f: f}
	l.mu.Lock()
	l.watchers = append(l.watchers, w)
	l.mu.Unlock()
	l.BeatSoon()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watchers = slices.DeleteFunc(slices.Clone(l.watchers), func(other *watcher) bool { return other == w })
	}
}

// BeatSoon triggers a heartbeat, without waiting for it.
func (l *Link) BeatSoon() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Beat sends a heartbeat now, and connects if necessary. The error says why Redis is away.
func (l *Link) Beat(ctx context.Context) error { return l.beat(ctx, false) }

func (l *Link) beat(ctx context.Context, leave bool) error {
	c, err := l.connect()
	l.beating.Lock()
	defer l.beating.Unlock()
	if err == nil {
		err = l.tell(ctx, c, leave)
	}
	if err != nil && ctx.Err() == nil {
		l.Fail(err)
	}
	return err
}

//go:embed heartbeat.lua
var heartbeatSource string

var heartbeatScript = rueidis.NewLuaScript(heartbeatSource)

// tell tells Redis that this gateway is alive. A gateway with nothing to say only asks whether
// Redis is up.
func (l *Link) tell(ctx context.Context, c rueidis.Client, leave bool) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	l.mu.Lock()
	note, sharing, joined := l.note, l.shares, l.joined
	l.mu.Unlock()
	asked := time.Now()
	if !joined {
		err := c.Do(ctx, c.B().Ping().Build()).Error()
		if err == nil {
			l.answered(asked, make([]int64, 4), false)
		}
		return err
	}
	said := ""
	if note != nil {
		said = note()
	}
	answer, err := heartbeatScript.Exec(ctx, c, []string{l.Key("gateways"), l.Key("acks"), l.Key("clocks")}, []string{
		l.Process, said, strconv.FormatBool(leave), strconv.FormatBool(sharing), milliseconds(KnownFor), milliseconds(l.aliveFor()),
		strconv.Itoa(l.State().Turns.known(sharing, asked, l.aliveFor())),
	}).AsIntSlice()
	if err == nil && len(answer) != 4 {
		err = fmt.Errorf("redis has answered with %d numbers", len(answer))
	}
	if err != nil {
		return fmt.Errorf("sending a heartbeat to redis: %w", err)
	}
	l.answered(asked, answer, sharing)
	return nil
}

func (l *Link) aliveFor() time.Duration { return missed * l.every }

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Key returns the name of a key of the fleet. The prefix is a hash tag: in a cluster, all keys of
// the fleet are on one node, because the scripts need that.
func (l *Link) Key(name string) string { return "{" + l.Prefix + "}:fleet:" + name }

// answered records an answer of Redis: its time, and how many gateways there are. sharing is what
// the heartbeat said about this gateway.
func (l *Link) answered(asked time.Time, answer []int64, sharing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, now := l.State(), time.Now()
	next := State{
		Up: true, Since: old.Since, Why: old.Why, Heard: now, RoundTrip: now.Sub(asked),
		Gateways: int(answer[1]), Clocks: int(answer[2]), Turns: old.Turns, clock: answer[0],
	}
	if !old.Up {
		next.Since = now
	}
	if !old.Up && old.Turns.Of > 0 {
		next.Turns.Kept = now.Add(l.aliveFor())
	}
	if min(now.Sub(next.Since), now.Sub(l.began)) < l.aliveFor() {
		next.Clocks = max(next.Clocks, old.Clocks)
	}
	if sharing && (next.Turns.Of == 0 || now.After(next.Turns.Kept)) {
		next.Turns = old.Turns.after(int(answer[3]), int(answer[2]), answer[0], asked, now)
	}
	l.state.Store(&next)
}

// Fail records that Redis did not answer a call, or gave an unusable answer. Redis counts as away
// until the next successful heartbeat. A call on a replaced client says nothing about the current
// one.
func (l *Link) Fail(why error) {
	if errors.Is(why, rueidis.ErrClosing) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.State()
	if next.Up {
		next.Since = time.Now()
	}
	next.Up, next.Why = false, why
	l.state.Store(&next)
}

// Now returns the time by Redis's clock in ms since 1970, 0 before a heartbeat with something to
// say.
func (l *Link) Now() int64 {
	s := l.State()
	if s.clock == 0 {
		return 0
	}
	return s.clock + time.Since(s.Heard).Milliseconds()
}
