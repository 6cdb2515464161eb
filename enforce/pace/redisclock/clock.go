// Package redisclock keeps the clocks of several gateways together in Redis or
// Valkey ([pace.Shared]).
//
// A slot is booked by one Lua call, on Redis's own clock: GCRA, the gap, and the
// block, for all clocks of the request or none. Nothing else is asked of Redis
// on a request's way. Places in flight are not kept there: each gateway has its
// part of them, the limit divided by the number of gateways (at least one), as
// that needs no lease, and no second call when an answer ends.
//
// Every gateway says once a second that it is alive, so all know how many they
// are. When Redis cannot be reached each goes on by itself with its part of the
// rate; see [pace.Peers]. It comes back by itself.
//
// All keys carry one hash tag, so that a Redis Cluster keeps them on one node,
// as a Lua call over several of them demands. Keys expire two minutes after their
// clocks are free. A user with restricted rights needs the keys and the channels
// under PREFIX:{pace}: and the commands of the scripts, EVALSHA, EVAL, SUBSCRIBE
// and ZREM.
package redisclock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/enforce/pace"
)

// ErrAway is the error of every call while Redis cannot be reached.
var ErrAway = errors.New("redis cannot be reached")

// Config says where and how.
type Config struct {
	// URL is that of the server: redis://, rediss:// or unix://, with the
	// parameters of rueidis.ParseURL. Required.
	URL string
	// Prefix begins the name of every key. Gateways with the same server and
	// prefix share their clocks. Default: "crawlgate".
	Prefix string
	// Name is this gateway's, without a space, different from all others.
	// Default: random.
	Name string
	// Timeout bounds every call. Default: 500 ms.
	Timeout time.Duration
	// Heartbeat is how often the gateway says that it is alive, and looks
	// whether Redis is back. After five missed ones others no longer count it.
	// Default: 1 s.
	Heartbeat time.Duration
	// Gateways is how many share the clocks at the least, while Redis is away.
	// Rank is this one's place among them, from zero, as long as none could be
	// counted: when Redis was away at the start. Defaults: 1 and 0.
	Gateways, Rank int
	// Counted is told how many gateways there are and which place among them is
	// this one's, with each heartbeat. It must not block. Default: nobody is told.
	Counted func(gateways, rank int)
	// Changed is told when Redis is away, with the reason, and when it is back,
	// once each time. It must not block. Default: nobody is told.
	Changed func(up bool, why error)
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "crawlgate"
	}
	if c.Name == "" {
		c.Name = rand.Text()
	}
	if c.Timeout <= 0 {
		c.Timeout = 500 * time.Millisecond
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = time.Second
	}
	c.Gateways = max(c.Gateways, 1)
	c.Rank = min(max(c.Rank, 0), c.Gateways-1)
	if c.Counted == nil {
		c.Counted = func(int, int) {}
	}
	if c.Changed == nil {
		c.Changed = func(bool, error) {}
	}
	return c
}

const (
	// leaseBeats is how many heartbeats a gateway may miss.
	leaseBeats = 5
	// aloneBeats is after how many heartbeats of none all gateways are taken to be
	// on their own.
	aloneBeats = 2
	// joinBeats is how many heartbeats after the first of them came back all those
	// who had been on their own go back to the shared clock, in the same moment.
	// Would each go when it sees Redis, those that do not yet would take turns that
	// Redis knows nothing of.
	joinBeats = 2
)

// Clock is a pace.Shared in Redis. It is safe for concurrent use.
type Clock struct {
	config Config
	option rueidis.ClientOption
	client atomic.Pointer[rueidis.Client] // nil until the first connection
	state  atomic.Pointer[state]

	mu      sync.Mutex // guards changes of state, and the three below
	blocked func(key string, pause time.Duration, strikes int)
	late    func(key string, at time.Time)
	joined  func()

	lates chan late // to be told

	stop context.CancelFunc
	done sync.WaitGroup
}

// state is what the clock knows of Redis and the gateways. It is replaced, never
// changed.
type state struct {
	up     bool      // Redis answers
	here   time.Time // since when
	away   time.Time // since when this gateway was on its own
	joins  time.Time // when all gateways go back to the shared clock, or went
	joined bool      // that it is back was told
	told   bool      // that it is away was told, after that
	used   bool      // the shared clock was used before
	census census
	watch  watch
}

// shares reports whether the shared clock is used at the given time.
func (s *state) shares(now time.Time) bool { return s.up && !now.Before(s.joins) }

// New makes a Clock and connects in the background: until that succeeds it is
// away. The error is about the configuration only. Close it after use.
func New(c Config) (*Clock, error) {
	option, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	if strings.Contains(c.Name, " ") {
		return nil, fmt.Errorf("naming gateway %q: the name holds a space", c.Name)
	}
	c = c.withDefaults()
	option.DisableCache = true
	option.DisableRetry = true // a late slot is no use
	option.Dialer.Timeout = c.Timeout
	option.Dialer.KeepAlive = c.Heartbeat
	option.ConnWriteTimeout = max(c.Timeout, time.Second)
	ctx, stop := context.WithCancel(context.Background())
	k := &Clock{config: c, option: option, stop: stop, lates: make(chan late, maxLates)}
	k.state.Store(&state{away: time.Now(), census: census{count: c.Gateways, rank: c.Rank}})
	k.done.Go(func() { k.live(ctx) })
	k.done.Go(func() { k.listen(ctx) })
	k.done.Go(func() { k.tellLates(ctx) })
	return k, nil
}

// parse reads the URL. Errors leave it out, as it may hold a password.
func parse(raw string) (rueidis.ClientOption, error) {
	if raw == "" {
		return rueidis.ClientOption{}, errors.New("parsing the redis URL: it is empty")
	}
	option, err := rueidis.ParseURL(raw)
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		err = bad.Err
	}
	if err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("parsing the redis URL: %w", err)
	}
	return option, nil
}

// Close leaves the gateways and ends the connection.
func (k *Clock) Close() error {
	k.stop()
	k.done.Wait()
	c := k.connection()
	if c == nil {
		return nil
	}
	defer c.Close()
	if !k.state.Load().up {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.config.Timeout)
	defer cancel()
	err := c.Do(ctx, c.B().Zrem().Key(k.gateways()).Member(k.config.Name).Build()).Error()
	if err != nil {
		return fmt.Errorf("leaving the gateways in redis: %w", err)
	}
	return nil
}

// Watch implements pace.Shared.
func (k *Clock) Watch(
	blocked func(key string, pause time.Duration, strikes int), late func(key string, at time.Time), joined func(),
) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocked, k.late, k.joined = blocked, late, joined
}

// Reserve implements pace.Shared: one round trip.
func (k *Clock) Reserve(ctx context.Context, demands []pace.Demand, maxWait time.Duration) (pace.Reservation, error) {
	keys := make([]string, len(demands))
	for i := range demands {
		keys[i] = k.key(demands[i].Key)
	}
	var answer []int64
	asked := time.Now()
	err := k.call(ctx, func(ctx context.Context, c rueidis.Client) error {
		var err error
		answer, err = reserveScript.Exec(ctx, c, keys, reserveArgs(demands, maxWait)).AsIntSlice()
		return err
	})
	if err != nil {
		return pace.Reservation{}, fmt.Errorf("booking a slot in redis: %w", err)
	}
	answered := time.Now()
	r, err := reservation(answer, keys, demands)
	if t, ok := r.Token.(token); ok {
		// Redis looked at its clock between question and answer, whatever our idea
		// of its time is.
		r.Early, r.At = k.state.Load().watch.local(t.slot)
		r.Early = latest(r.Early, asked.Add(r.Wait))
		r.At = earliest(r.At, answered.Add(r.Wait))
		r.At = latest(r.At, r.Early)
	}
	return r, err
}

// Release implements pace.Shared.
func (k *Clock) Release(r pace.Reservation) error {
	t, ok := r.Token.(token)
	if !ok {
		return nil
	}
	err := k.call(context.Background(), func(ctx context.Context, c rueidis.Client) error {
		return releaseScript.Exec(ctx, c, t.keys, []string{micros(t.slot)}).Error()
	})
	if err != nil {
		return fmt.Errorf("giving a slot back to redis: %w", err)
	}
	return nil
}

// Block implements pace.Shared.
func (k *Clock) Block(key string, pause time.Duration, strikes int) error {
	told := message{from: k.config.Name, key: key, pause: pause, strikes: strikes}
	err := k.call(context.Background(), func(ctx context.Context, c rueidis.Client) error {
		return blockScript.Exec(ctx, c, []string{k.key(key)}, []string{micros(pause), k.channel(), told.String()}).Error()
	})
	if err != nil {
		return fmt.Errorf("blocking a key in redis: %w", err)
	}
	return nil
}

// Unblock implements pace.Shared.
func (k *Clock) Unblock(key string) (found bool, err error) {
	told := message{from: k.config.Name, key: key}
	err = k.call(context.Background(), func(ctx context.Context, c rueidis.Client) error {
		n, err := unblockScript.Exec(ctx, c, []string{k.key(key)}, []string{k.channel(), told.String()}).AsInt64()
		found = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("unblocking a key in redis: %w", err)
	}
	return found, nil
}

// Peers implements pace.Shared.
func (k *Clock) Peers() pace.Peers {
	s, now := k.state.Load(), time.Now()
	up, since, count := s.shares(now), s.away, s.census.count
	if up {
		since = latest(s.here, s.joins)
	} else {
		count = max(count, k.config.Gateways)
	}
	joined := now.Sub(s.joins)
	if !s.census.alone {
		joined = never
	}
	return pace.Peers{
		Up:     up,
		For:    now.Sub(since),
		Joined: joined,
		Count:  count,
		Rank:   s.census.rank,
		Time:   s.watch.shared(now),
		Error:  s.watch.best().error,
	}
}

// call runs do against Redis. Any failure but the caller's own end means that
// Redis is away, for all calls until the next heartbeat that succeeds.
func (k *Clock) call(ctx context.Context, do func(context.Context, rueidis.Client) error) error {
	c := k.connection()
	if c == nil || !k.state.Load().shares(time.Now()) {
		return ErrAway
	}
	bounded, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	err := do(bounded, c)
	if err != nil && ctx.Err() == nil {
		k.away(err)
	}
	return err
}

func (k *Clock) connection() rueidis.Client {
	c := k.client.Load()
	if c == nil {
		return nil
	}
	return *c
}

func (k *Clock) key(name string) string { return k.config.Prefix + ":{pace}:key:" + name }

func (k *Clock) gateways() string { return k.config.Prefix + ":{pace}:gateways" }

func (k *Clock) channel() string { return k.config.Prefix + ":{pace}:blocks" }

func (k *Clock) lateChannel() string { return k.config.Prefix + ":{pace}:lates" }

// message tells other gateways of a block, or without a pause of its end.
type message struct {
	from, key string
	pause     time.Duration
	strikes   int
}

// String is the form that readMessage reads. The key comes last: it may hold
// anything.
func (m message) String() string {
	return fmt.Sprintf("%s %d %d %s", m.from, m.pause.Microseconds(), m.strikes, m.key)
}

func readMessage(s string) (message, error) {
	parts := strings.SplitN(s, " ", 4)
	if len(parts) != 4 {
		return message{}, fmt.Errorf("reading a block: %d parts, want 4", len(parts))
	}
	pause, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || pause < 0 || pause > int64(maxPause/time.Microsecond) {
		return message{}, fmt.Errorf("reading a block: pause %q is no number of microseconds within a year", parts[1])
	}
	strikes, err := strconv.Atoi(parts[2])
	if err != nil || strikes < 0 {
		return message{}, fmt.Errorf("reading a block: strikes %q is no count", parts[2])
	}
	return message{from: parts[0], key: parts[3], pause: time.Duration(pause) * time.Microsecond, strikes: strikes}, nil
}

// never is longer ago than anything that counts.
const never = 2 * maxPause

const maxPause = 365 * 24 * time.Hour

var _ pace.Shared = (*Clock)(nil)
