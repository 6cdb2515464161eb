package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/caddylog"
	"github.com/crawlgate/crawlgate/origin"
)

// Fleet is the Redis through which orders reach all gateways of a fleet.
type Fleet struct {
	// URL is the Redis, as in `redis.url`. Placeholders are replaced. Default: that of `redis`, of
	// `pace.shared` or of the store, in this order.
	URL string `json:"url,omitempty"`
	// Expect is the least number of gateways, as in `redis.expect`. Default: that of `redis`.
	Expect int `json:"expect,omitempty"`
	// Self is this gateway.
	Self cluster.Self `json:"-"`
}

// redisLink is the link to a Redis. All parts with the same URL and prefix share it.
type redisLink struct{ *link.Link }

// acquireLink connects a part of the gateway to a Redis, or returns an existing connection. Without
// a URL it returns nil. It logs each time that Redis is away or back. A part that keeps the link
// must have the URL and the prefix in its own key: the link closes with the last configuration that
// names both.
func acquireLink(e *Engine, part, url string) (*link.Link, error) {
	if url == "" {
		return nil, nil //nolint:nilnil // the part does without
	}
	r, err := acquire(e, "redis "+e.Config.Prefix+" "+url, func() (r redisLink, err error) {
		l, err := link.New(link.Config{URL: url, Prefix: e.Config.Prefix})
		if err != nil {
			return r, fmt.Errorf("%s: %w", part, err)
		}
		logger := e.logger.Named("redis").With(zap.String("address", l.Address))
		l.Watch(func(s link.State, news bool) {
			switch {
			case news && s.Up:
				logger.Info("redis answers; it is shared with the other gateways", zap.NamedError("before", s.Why))
			case news && s.Refused():
				logger.Error("redis refuses the heartbeat; clocks and orders are not shared with the other gateways", zap.Error(s.Why))
			case news:
				logger.Error("redis does not answer; nothing is shared with the other gateways until it does", zap.Error(s.Why))
			}
		})
		return redisLink{l}, nil
	})
	return r.Link, err
}

// acquireLinked returns the value of a kind for a Redis, and calls open with a link to it if the
// pool has no value yet. Without a URL the link is nil.
func acquireLinked[T caddy.Destructor](e *Engine, kind, part, url string, open func(e *Engine, l *link.Link) (T, error)) (v T, err error) {
	l, err := acquireLink(e, part, url)
	if err != nil {
		return v, err
	}
	return acquire(e, kind+" "+e.Config.Prefix+" "+url, func() (T, error) { return open(e, l) })
}

// Destruct closes the link.
func (l redisLink) Destruct() error {
	l.Close()
	return nil
}

// fleetState is the fleet of the process, identified by its Redis and prefix. It is the
// [cluster.Local] of the gateway.
type fleetState struct {
	link    *link.Link
	fleet   *cluster.Fleet
	stops   *stopState
	logger  *zap.Logger
	short   rate.Sometimes // limits the log lines about failures
	current atomic.Pointer[Engine]

	refreshes errgroup.Group
	ctx       context.Context // of the refreshes and the exchange of checkpoints
	stop      context.CancelFunc
	heads     sync.WaitGroup // the exchange of checkpoints
	mu        sync.Mutex     // guards the fields below
	folder    string         // of the file
	last      lastAction
}

// lastAction is the fleet's last action that this gateway has done.
type lastAction struct {
	ID string `json:"last_action"`
}

var fleetFile = stateFile{
	"fleet.json", "the actions of other gateways that were done",
	"to begin without: purges and refreshes that were given in the meantime are missed",
}

// maxRefreshes bounds the waiting and running refreshes for other gateways.
const maxRefreshes = 256

// openFleet joins the fleet of e.
func openFleet(e *Engine, l *link.Link) (*fleetState, error) {
	s := &fleetState{
		link: l, stops: e.stops, folder: e.Config.Store.folder(), logger: e.logger.Named("fleet"),
		short: rate.Sometimes{First: 1, Interval: time.Minute},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.refreshes.SetLimit(maxRefreshes)
	s.current.Store(e)
	if err := fleetFile.read(s.folder, &s.last); err != nil {
		return nil, err
	}
	c := e.Config.Fleet
	s.fleet = cluster.New(cluster.Config{Link: l, Local: s, Failed: s.failed, Unread: s.unread}, c.Self, c.Expect)
	s.heads.Go(func() { s.exchangeCheckpoints(s.ctx) })
	return s, nil
}

// Destruct leaves the fleet.
func (s *fleetState) Destruct() error {
	s.stop()
	s.heads.Wait()
	err := s.fleet.Close()
	_ = s.refreshes.Wait() // they return no errors
	return err
}

// apply makes the fleet follow the configuration of e and announce it to others. The digest is
// known once all of its sites are provisioned.
func (s *fleetState) apply(e *Engine) {
	if s == nil {
		return
	}
	s.current.Store(e)
	self := e.Config.Fleet.Self
	if e.listens.Load() != nil {
		self.Config = e.ConfigDigest()
	}
	s.fleet.Describe(self, e.Config.Fleet.Expect)
	s.mu.Lock()
	moved := s.folder != e.Config.Store.folder()
	s.folder = e.Config.Store.folder()
	s.mu.Unlock()
	if moved {
		s.KeepAction(s.LastAction())
	}
}

// Fleet returns the fleet of the gateway. Without one it returns nil, which is ready for use.
func (e *Engine) Fleet() *cluster.Fleet {
	if e.fleet == nil {
		return nil
	}
	return e.fleet.fleet
}

// ownSecret is the secret of a gateway without a fleet.
var ownSecret = []byte(rand.Text() + rand.Text())

// Secret returns random bytes that the gateways of a fleet share. Without a fleet they last as long
// as the process. They sign tokens that strangers send back. Anyone who knows them can make a
// token, but a token alone permits nothing.
func (e *Engine) Secret(ctx context.Context) ([]byte, error) {
	if f := e.Fleet(); f != nil {
		return f.Share(ctx, "tokens", ownSecret)
	}
	return ownSecret, nil
}

// Orders implements cluster.Local.
func (s *fleetState) Orders() enforce.StopSet { return s.stops.held.All() }

// Merge implements cluster.Local.
func (s *fleetState) Merge(other enforce.StopSet) map[string]int {
	before := s.Orders()
	ended, err := s.stops.merge(other)
	if err != nil {
		s.logger.Error("orders of other gateways may be forgotten by a restart", zap.Error(err))
	}
	after := s.Orders()
	s.tell("an order of another gateway is in force", after.Since(before), ended)
	s.tell("another gateway has lifted an order", before.Since(after), nil)
	return ended
}

// tell logs orders.
func (s *fleetState) tell(message string, orders enforce.StopSet, ended map[string]int) {
	for _, order := range orders.Held {
		if order.Ended(time.Now()) {
			continue
		}
		s.logger.Warn(message, zap.String("scope", string(order.Scope)), zap.String("value", order.Value), zap.String("by", order.By),
			zap.String("reason", order.Reason), zap.String("ticket", order.Ticket), zap.Int("ended", ended[order.ID]))
	}
}

// Act implements cluster.Local. A late unblock is not done: the site may have sent another 429
// since then.
func (s *fleetState) Act(ctx context.Context, a cluster.Action) (ended int, err error) {
	e := s.current.Load()
	if a.Kind == cluster.Unblock {
		if a.Late || e.pacing.shared != nil { // shared clocks already know
			return 0, nil
		}
		_, found, err := e.Unblock(a.Value)
		return count(found), err
	}
	o, err := origin.Parse(a.Value)
	if err != nil {
		return 0, fmt.Errorf("%s for another gateway: %w", a.Kind, err)
	}
	_, known := e.Cache().Peek(o, "")
	if a.Kind == cluster.Purge {
		e.forgetFile(ctx, o)
	}
	shared := e.Config.Store.Kind == "redis" // it already has the effect of the action at its first gateway
	switch {
	case a.Kind == cluster.Purge && !shared:
		err = e.Cache().Purge(ctx, o)
	case a.Kind == cluster.Refresh && !shared && !a.Late:
		s.refresh(e, o)
	default:
		err = e.Cache().Forget(o)
	}
	return count(known), err
}

// refresh fetches an origin in the background, unless that is forbidden.
func (s *fleetState) refresh(e *Engine, o origin.Origin) {
	if e.StopsFetch(o) != nil {
		return
	}
	if !s.refreshes.TryGo(func() error {
		_, _ = e.Cache().Refresh(s.ctx, o) // a failure is in the record; the fetch has its own bounds
		return nil
	}) {
		droppedTotal.WithLabelValues("refresh").Inc()
	}
}

// Lost implements cluster.Local. A lost action may be a purge, so it empties the memory, and the
// store is read again.
func (s *fleetState) Lost() {
	s.logger.Warn("actions of other gateways are lost, because redis was set back or this gateway was away for long; " +
		"rulesets in memory are read from the store again")
	s.current.Load().Cache().ForgetAll()
}

// LastAction implements cluster.Local.
func (s *fleetState) LastAction() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.ID
}

// KeepAction implements cluster.Local.
func (s *fleetState) KeepAction(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last.ID = id
	if err := fleetFile.write(s.folder, s.last); err != nil {
		s.failed(err)
	}
}

func (s *fleetState) failed(err error) {
	s.short.Do(func() { s.logger.Error("an exchange with other gateways failed; logged once a minute", zap.Error(err)) })
}

func (s *fleetState) unread() {
	s.logger.Warn("the orders in redis could not be read in time; the orders in stops.json stay in force")
}

// checkpointInterval is how often the sealed logs exchange their newest checkpoints with other
// gateways.
const checkpointInterval = 2 * time.Second

// exchangeCheckpoints publishes the newest checkpoints of this gateway's logs, and writes those of
// other gateways into the logs here. It uses the ones from the last heartbeat, so neither Redis nor
// a disk holds up anything else.
func (s *fleetState) exchangeCheckpoints(ctx context.Context) {
	tick := time.NewTicker(checkpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.fleet.Publish(caddylog.Checkpoints())
		caddylog.RecordPeerCheckpoints(s.fleet.Checkpoints())
	}
}
