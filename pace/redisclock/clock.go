package redisclock

import (
	"context"
	_ "embed" // the scripts
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
)

// ErrAway is the error of every call while Redis cannot be reached.
var ErrAway = errors.New("redis cannot be reached")

// Clock is a [pace.Shared] in Redis. It is safe for concurrent use.
type Clock struct {
	link  *link.Link
	made  time.Time
	least int // gateways while Redis is away

	ctx      context.Context // of the listener and of blocks that are told
	stop     context.CancelFunc
	tasks    sync.WaitGroup
	look     chan struct{} // a bucket may have lost its memory
	channel  string        // the one of the fleet's clocks
	lost     string        // the message that Redis has lost its memory
	leases   leases
	endWatch func()
}

// New makes a Clock of a link, which outlives it. gateways is the least number that share the
// clocks, while Redis is away. Close it after use.
func New(l *link.Link, gateways int) *Clock {
	k := &Clock{link: l, made: time.Now(), least: max(gateways, 1), look: make(chan struct{}, 1), endWatch: func() {}}
	k.leases.renew, k.leases.give, k.leases.held = make(chan struct{}, 1), make(chan struct{}, 1), make(map[string][]string)
	k.channel, k.lost = l.Channel(l.Prefix+":{pace}:blocks"), message{From: l.Process, Lost: true}.String()
	k.ctx, k.stop = context.WithCancel(context.Background())
	l.ShareClocks(k.least)
	return k
}

// Close leaves the gateways that share clocks.
func (k *Clock) Close() {
	k.stop()
	k.tasks.Wait()
	k.endWatch()
	k.link.ShareClocks(0)
}

// Watch implements pace.Shared.
func (k *Clock) Watch(blocked func(key string, pause time.Duration, strikes int), relearn func()) {
	back := make(chan struct{}, 1) // a loss is told for each bucket, for many at once
	k.tasks.Go(func() {
		for k.ctx.Err() == nil {
			select {
			case <-back:
				signal(k.leases.renew)
				relearn()
			case <-k.ctx.Done():
			}
		}
	})
	k.tasks.Go(func() {
		k.link.Listen(k.ctx, k.channel, func(text string) {
			var m message
			switch err := json.Unmarshal([]byte(text), &m); {
			case text == "" || m.Lost: // messages, or what Redis knew
				signal(back)
			case err == nil && m.From != k.link.Process:
				blocked(m.Key, m.Pause, m.Strikes)
			}
		})
	})
	k.tasks.Go(k.keepEras)
	k.tasks.Go(k.keepLeases)
	k.endWatch = k.link.Watch(func(s link.State, news bool) {
		if news && s.Up {
			signal(back)
			signal(k.look)
		}
	})
}

var (
	//go:embed era.lua
	eraSource string
	//go:embed reserve.lua
	reserveSource string
	//go:embed release.lua
	releaseSource string
	//go:embed block.lua
	blockSource string
	//go:embed unblock.lua
	unblockSource string

	reserveScript = rueidis.NewLuaScript(eraSource + reserveSource)
	eraScript     = rueidis.NewLuaScriptNoSha(eraSource + "return lost")
	releaseScript = rueidis.NewLuaScript(releaseSource)
	blockScript   = rueidis.NewLuaScript(blockSource)
	unblockScript = rueidis.NewLuaScript(unblockSource)
)

// token is what Release needs to know of a reservation in one bucket.
type token struct {
	keys   []string
	slot   string // on Redis's clock, in microseconds since 1970
	lease  string
	places []string // the clocks that have the lease
}

// micros is the unit of the scripts. Waits and intervals are rounded up, so no slot comes early.
func micros(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Microsecond-1)/time.Microsecond), 10)
}

// Reserve implements pace.Shared: one round trip for each bucket. The clock that most share goes
// first: the slots of the others must be the same, and if one of them comes later nothing is kept.
func (k *Clock) Reserve(ctx context.Context, demands []pace.Demand, maxWait time.Duration) (pace.Reservation, error) {
	parts := inBuckets(demands)
	slack := k.slack(demands, len(parts))
	all := pace.Reservation{Until: time.Now().Add(max(maxWait, noSpacing))}
	var tokens []token
	lease := k.nextLease()
	for _, part := range slices.Backward(parts) {
		asked, longest := time.Now(), maxWait
		if len(tokens) > 0 {
			longest = min(maxWait, all.Until.Sub(asked))
		}
		t := token{lease: lease}
		t.keys, t.places = k.keys(part)
		r, err := k.reserve(ctx, part, &t, max(0, all.At.Sub(asked)), longest, slack)
		if err != nil || r.Outcome != pace.Reserved {
			_ = k.Release(pace.Reservation{Token: tokens}) // if that fails, a slot is lost
			if err != nil {                                // Redis may have reserved all the same
				k.leases.drop(lease, t.places, func() {})
			}
			if len(tokens) > 0 && r.Outcome == pace.TooLate && r.Wait <= maxWait {
				r.Outcome = pace.NotYet
			}
			return r, err
		}
		// Redis looked at its clock some time between question and answer: the slot is not before the
		// one plus the wait, and not after the other plus the wait.
		if at := time.Now().Add(r.Wait); at.After(all.At) {
			all.At = at
		}
		if until := asked.Add(r.Wait + slack); until.Before(all.Until) {
			all.Until = until
		}
		all.Outcome, all.Wait = r.Outcome, max(all.Wait, r.Wait)
		tokens = append(tokens, t)
	}
	all.Token = tokens
	k.leases.open(tokens)
	return all, nil
}

// reserve reserves a slot at clocks in one bucket, and tells it the token.
func (k *Clock) reserve(
	ctx context.Context, p part, t *token, least, longest, slack time.Duration,
) (r pace.Reservation, err error) {
	keys := append([]string{k.eraKey(p.bucket)}, t.keys...)
	args := make([]string, 0, 7+5*len(p.demands))
	args = append(args, k.channel, k.lost, micros(longest), micros(least), k.link.Process, t.lease, micros(leaseFor))
	for _, d := range p.demands {
		d = withSlack(d, slack)
		args = append(args, micros(d.Interval), micros(d.Tolerance), micros(d.Delay), strconv.FormatBool(d.Spent), strconv.Itoa(d.Places))
	}
	err = k.call(ctx, "reserving a slot in redis", reserveScript, keys, args, func(a rueidis.RedisResult) error {
		answer, err := a.AsIntSlice()
		if err != nil {
			return err
		}
		if r, err = reservation(answer, p.demands); err != nil {
			return err
		}
		t.slot = strconv.FormatInt(answer[2], 10)
		if answer[5] == 1 {
			signal(k.look)
		}
		return nil
	})
	return r, err
}

const (
	// noSpacing is the slack of a slot that need not be apart from others.
	noSpacing = 365 * 24 * time.Hour
	// delivery is how much longer than the next request a request may take to its site.
	delivery = 25 * time.Millisecond
)

// slack is how late after its slot a request with the demands may go. As much is added to what is
// reserved, so that others can rely on the slots being apart: a twentieth of the time between two
// requests, from 2 to 50 ms, but no less than twice a round trip to Redis.
func (k *Clock) slack(demands []pace.Demand, calls int) time.Duration {
	slack := noSpacing
	for _, d := range demands {
		spacing := d.Delay
		if d.Tolerance == 0 {
			spacing = max(spacing, d.Interval)
		}
		if spacing > 0 {
			slack = min(slack, max(spacing/20, 2*time.Millisecond), 50*time.Millisecond)
		}
	}
	return max(slack, time.Duration(2*calls)*k.link.State().RoundTrip)
}

// withSlack adds the slack to intervals and gaps. A burst has room for it already. The site asks
// for the gap, and counts it between the requests that reach it.
func withSlack(d pace.Demand, slack time.Duration) pace.Demand {
	if slack >= noSpacing {
		return d
	}
	if d.Tolerance == 0 && d.Interval > 0 {
		d.Interval += slack
	}
	if d.Delay > 0 {
		d.Delay += slack + min(slack, delivery)
	}
	return d
}

// reservation reads the answer of reserve.lua.
func reservation(answer []int64, demands []pace.Demand) (pace.Reservation, error) {
	if len(answer) != 6 {
		return pace.Reservation{}, fmt.Errorf("reserve script answered %d values, want 6", len(answer))
	}
	r := pace.Reservation{
		Outcome: pace.ReserveOutcome(answer[0]),
		Wait:    time.Duration(answer[1]) * time.Microsecond,
		Blocked: time.Duration(answer[3]) * time.Microsecond,
	}
	if i := int(answer[4]); i >= 1 && i <= len(demands) {
		r.BlockedKey = demands[i-1].Key
	}
	return r, nil
}

// Release implements pace.Shared: one round trip for each bucket.
func (k *Clock) Release(r pace.Reservation) error {
	tokens, _ := r.Token.([]token)
	k.leases.end(tokens)
	var all error
	for _, t := range tokens {
		err := k.call(context.Background(), "giving a slot back to redis", releaseScript, t.keys,
			[]string{t.slot, t.lease}, rueidis.RedisResult.Error)
		all = errors.Join(all, err)
	}
	return all
}

// Block implements pace.Shared.
func (k *Clock) Block(key string, pause time.Duration, strikes int) error {
	m := message{From: k.link.Process, Key: key, Pause: pause, Strikes: strikes}
	args := []string{micros(pause), k.channel, m.String()}
	return k.call(k.ctx, "blocking a key in redis", blockScript,
		[]string{k.clockKey(key)}, args, rueidis.RedisResult.Error)
}

// Unblock implements pace.Shared.
func (k *Clock) Unblock(key string) (found bool, err error) {
	args := []string{k.channel, message{From: k.link.Process, Key: key}.String()}
	err = k.call(context.Background(), "unblocking a key in redis", unblockScript, []string{k.clockKey(key)}, args,
		func(a rueidis.RedisResult) (err error) {
			found, err = a.AsBool()
			return err
		})
	return found, err
}

// Peers implements pace.Shared. What the link knows from before the Clock was made does not count:
// it begins like one whose Redis has just come back.
func (k *Clock) Peers() pace.Peers {
	s := k.link.State()
	count := max(s.Clocks, 1)
	if !s.Up {
		count = max(count, k.least)
	}
	peers := pace.Peers{Up: s.Up, For: min(time.Since(s.Since), time.Since(k.made)), Count: count}
	if !s.Up || !s.Turns.Kept.IsZero() {
		peers.Turn, peers.Turns, peers.Time = s.Turns.Place, s.Turns.Of, s.Turns.Time()
	}
	return peers
}

// call runs a script and reads its answer. Any failure but the caller's own end means that Redis is
// away, for all calls until the next heartbeat that succeeds.
func (k *Clock) call(
	ctx context.Context, doing string, script *rueidis.Lua, keys, args []string,
	read func(rueidis.RedisResult) error,
) error {
	if !k.link.State().Up {
		return fmt.Errorf("%s: %w", doing, ErrAway)
	}
	bounded, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	err := read(script.Exec(bounded, k.link.Client(), keys, args))
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		k.link.Fail(err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// message tells other gateways of a block, or without a pause of its end; or that memory was lost.
type message struct {
	From    string        `json:"from"`
	Key     string        `json:"key"`
	Pause   time.Duration `json:"pause,omitempty"`
	Strikes int           `json:"strikes,omitempty"`
	Lost    bool          `json:"lost,omitempty"`
}

// String is the form that is sent.
func (m message) String() string {
	text, _ := json.Marshal(m) // strings and numbers: it cannot fail
	return string(text)
}

// LastMembership is what a gateway should remember of the others over a restart, for a start while
// Redis is away ([New]). It is a value.
type LastMembership struct {
	// Gateways is how many there were.
	Gateways int `json:"gateways"`

	fewer time.Time // since when there are fewer; zero if there are not
}

// fewerFor is how long there must be fewer gateways before that is believed. The gateways of a
// fleet that is shut down one by one must not each come back as the only one.
const fewerFor = time.Hour

// Counted is the membership after a count.
func (m LastMembership) Counted(gateways int, now time.Time) LastMembership {
	switch {
	case gateways >= m.Gateways:
		return LastMembership{Gateways: gateways}
	case m.fewer.IsZero():
		m.fewer = now
	case now.Sub(m.fewer) >= fewerFor:
		return LastMembership{Gateways: gateways}
	}
	return m
}
