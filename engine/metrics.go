package engine

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/caddylog"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// instruments are the collectors of the process. Caddy makes a registry for each configuration; the
// collectors are made once and registered again with each, so that no reload sets a counter back.
// docs/metrics.md lists them.
var instruments = newMetrics()

// metrics counts what the gateway does. No label ever holds a host, a path, a user agent or a name
// that a client can choose: their number must stay small.
type metrics struct {
	decisions    *prometheus.CounterVec
	states       *prometheus.CounterVec
	asked        *prometheus.CounterVec
	early        *prometheus.CounterVec
	payment      prometheus.Counter
	preferences  *prometheus.CounterVec
	lookups      *prometheus.CounterVec
	fetches      *prometheus.CounterVec
	fetchSeconds prometheus.Histogram
	fetchQueue   prometheus.Histogram
	dropped      *prometheus.CounterVec
	storeErrors  *prometheus.CounterVec
	storeUp      *upGauge
	texts        *prometheus.CounterVec
	paceWait     prometheus.Histogram
	paceRefused  *prometheus.CounterVec
	blocks       *prometheus.CounterVec
	sharedUp     *upGauge
	tunnels      *prometheus.CounterVec
	tunnelSaid   *prometheus.CounterVec
	tunnelsOpen  prometheus.Gauge
	handshakes   *prometheus.CounterVec
	refused      *prometheus.CounterVec
	fleetUp      prometheus.Gauge
	fleetSize    prometheus.Gauge
	fleetVersion prometheus.Gauge
	fleetPending prometheus.Gauge
	lost         prometheus.Counter
	all          *prometheus.Registry
}

func newMetrics() *metrics {
	all := prometheus.NewRegistry()
	auto := promauto.With(all)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Namespace: "crawlgate", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Namespace: "crawlgate", Name: name, Help: help, Buckets: buckets})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Namespace: "crawlgate", Name: name, Help: help})
	}
	m := &metrics{
		all:          all,
		decisions:    counter("decisions_total", "Requests by decision and its reason.", "decision", "reason"),
		states:       counter("decision_states_total", "Decisions by the state of the origin's robots.txt.", "state"),
		asked:        counter("agent_requests_total", "Requests by the agent block of the sender; other is all that none names.", "agent"),
		early:        counter("early_requests_total", "Requests that came back before their Retry-After was over, by the same.", "agent"),
		payment:      counter("payment_required_total", "Requests that a site answered with 402 (Payment Required).").WithLabelValues(),
		preferences:  counter("preferences_total", "Purposes of the agents of requests, by what the sites say of them.", "purpose", "value"),
		lookups:      counter("lookups_total", "Rulesets asked for, by where they came from.", "source"),
		fetches:      counter("fetches_total", "Fetches of robots.txt by outcome and cause.", "outcome", "cause"),
		fetchSeconds: histogram("fetch_seconds", "Duration of fetches of robots.txt.", .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20),
		fetchQueue:   histogram("fetch_queue_seconds", "Time that fetches waited for their turn.", .001, .01, .1, .5, 1, 5, 20),
		dropped:      counter("dropped_total", "Things given up because a bound was reached.", "what"),
		storeErrors:  counter("store_errors_total", "Failed operations of the store.", "operation"),
		storeUp:      &upGauge{Gauge: gauge("store_up", "1 while the store works, 0 while it fails.")},
		texts:        counter("texts_dropped_total", "Texts of robots.txt that the store has dropped; early says whether for want of room.", "early"),
		paceWait:     histogram("pace_wait_seconds", "Time that requests were held for politeness.", .001, .01, .1, .5, 1, 2, 5, 10, 30),
		paceRefused:  counter("pace_refusals_total", "Requests refused for politeness, by reason.", "reason"),
		blocks:       counter("host_blocks_total", "Hosts that asked by 429, 430 or 503 to be left alone; explicit says whether with Retry-After.", "explicit"),
		sharedUp:     &upGauge{Gauge: gauge("shared_clock_up", "1 while the clocks are shared with other gateways, 0 while they cannot be or are not meant to.")},
		tunnels:      counter("tunnels_total", "CONNECT tunnels opened, by what was spoken inside.", "kind"),
		tunnelSaid:   counter("tunnel_decisions_total", "CONNECT tunnels by decision and its reason; inside says whether requests in it are seen.", "decision", "reason", "inside"),
		handshakes:   counter("handshake_failures_total", "Failed TLS handshakes of clients inside tunnels, by reason.", "reason"),
		tunnelsOpen:  gauge("tunnels_open", "CONNECT tunnels open now."),
		refused:      counter("connections_refused_total", "Connections of clients that were closed, by the limit that was reached.", "reason"),
		fleetUp:      gauge("fleet_up", "1 while orders reach the other gateways, 0 while they cannot or there are none."),
		fleetSize:    gauge("fleet_gateways", "Gateways of the fleet that are alive, this one included."),
		fleetVersion: gauge("fleet_orders_version", "Version of the orders that this gateway has applied last."),
		fleetPending: gauge("fleet_orders_pending", "Orders and lifts of this gateway that have not reached Redis yet."),
		lost:         counter("log_lost_total", "Lines that the access log did not take: of requests that were answered, and of robots.txt.").WithLabelValues(),
	}
	all.MustRegister(caddylog.Metrics(), newStatusMetrics())
	m.storeUp.Set(1)
	return m
}

// upGauge is a gauge of 0 and 1 that can be read.
type upGauge struct {
	prometheus.Gauge
	up atomic.Bool
}

// Set implements prometheus.Gauge.
func (g *upGauge) Set(value float64) {
	g.up.Store(value > 0)
	g.Gauge.Set(value)
}

// RegisterMetrics adds all collectors to the registry of a configuration. Adding them again is no
// error.
func RegisterMetrics(registry prometheus.Registerer) error {
	err := registry.Register(instruments.all)
	if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !already {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// CountDecision counts one request or, of a CONNECT, one tunnel. The requests in a tunnel that is
// looked into are counted by themselves. block is the agent's, or [OtherAgent]; early says that the
// request came back before its Retry-After was over.
func CountDecision(d enforce.Decision, method, block string, early bool) {
	switch {
	case method != http.MethodConnect:
		instruments.decisions.WithLabelValues(d.Outcome(), string(d.Reason)).Inc()
		instruments.asked.WithLabelValues(block).Inc()
		instruments.early.WithLabelValues(block).Add(float64(count(early)))
	case d.PathVisible:
		instruments.tunnelSaid.WithLabelValues(d.Outcome(), string(d.Reason), "seen").Inc()
		return
	default:
		instruments.tunnelSaid.WithLabelValues(d.Outcome(), string(d.Reason), "unseen").Inc()
	}
	instruments.states.WithLabelValues(d.State.String()).Inc()
	for _, purpose := range d.Purposes { // of the configuration, so their number is bounded
		instruments.preferences.WithLabelValues(purpose, d.Preferences.Value(purpose).String()).Inc()
	}
}

// PaymentRequired counts one request that a site answered with 402.
func PaymentRequired() { instruments.payment.Inc() }

// TunnelOpened counts a CONNECT tunnel that is open until closed is called.
func TunnelOpened() (closed func()) {
	instruments.tunnelsOpen.Inc()
	return instruments.tunnelsOpen.Dec
}

// TunnelSpoke counts a tunnel by what the client spoke in it.
func TunnelSpoke(kind string) { instruments.tunnels.WithLabelValues(kind).Inc() }

// HandshakeFailed counts a failed TLS handshake of a client, by its reason.
func HandshakeFailed(reason string) { instruments.handshakes.WithLabelValues(reason).Inc() }

// ConnectionRefused counts a connection of a client that was closed, by the limit that was reached,
// or "unreadable".
func ConnectionRefused(limit string) { instruments.refused.WithLabelValues(limit).Inc() }

var unread = rate.Sometimes{Interval: time.Second} // of the lines below

// RequestUnread counts and logs a request that net/http cannot read, and for which it calls no
// handler. The fields say how it ended.
func RequestUnread(fields ...zap.Field) {
	ConnectionRefused("unreadable")
	unread.Do(func() {
		caddy.Log().Named("http.handlers.robots").Warn("a request cannot be read; said once a second", fields...)
	})
}

// Granted implements pace.Observer.
func (m *metrics) Granted(wait time.Duration, _ bool) { m.paceWait.Observe(wait.Seconds()) }

// Refused implements pace.Observer.
func (m *metrics) Refused(reason pace.Reason) { m.paceRefused.WithLabelValues(string(reason)).Inc() }

// Blocked implements pace.Observer.
func (m *metrics) Blocked(explicit bool) {
	m.blocks.WithLabelValues(strconv.FormatBool(explicit)).Inc()
}

// cacheObserver counts what the cache does, and logs what an operator should know.
type cacheObserver struct {
	*metrics
	logger  *zap.Logger
	fetcher *currentFetcher
	short   rate.Sometimes // says that the machine lacks something
	full    rate.Sometimes // says that the store does
}

// Looked implements robotscache.Observer.
func (o *cacheObserver) Looked(s robotscache.Source, err error) {
	if err != nil {
		o.lookups.WithLabelValues("error").Inc()
		return
	}
	o.lookups.WithLabelValues(s.String()).Inc()
}

// Fetched implements robotscache.Observer.
func (o *cacheObserver) Fetched(k fetch.Key, out fetch.Outcome, queued time.Duration) {
	o.fetches.WithLabelValues(out.Kind.String(), string(out.Cause)).Inc()
	o.fetchSeconds.Observe(out.Duration.Seconds())
	o.fetchQueue.Observe(queued.Seconds())
	if out.Kind == fetch.KindRules && robotstxt.IsUTF16(out.Body) {
		o.logger.Warn("robots.txt is in UTF-16, not UTF-8; nothing in it can be read, so it allows everything", zap.Stringer("origin", k.Origin))
	}
	if out.Ours() {
		o.short.Do(func() {
			o.logger.Error("robots.txt cannot be fetched for a fault of this machine or of the upstream proxy; said once a minute",
				zap.Stringer("origin", k.Origin), zap.String("cause", string(out.Cause)), zap.String("detail", out.Detail))
		})
	}
}

// Recorded implements robotscache.Observer: it tells of a fetch, and of what that has changed, as
// the current configuration wants it.
func (o *cacheObserver) Recorded(before fetch.Record, entry *robotscache.Entry, out fetch.Outcome, kept bool) {
	e, a := o.fetcher.Load(), robotscache.AnswerOf(robotscache.EventFetched, before.Key(), entry, time.Now())
	a.Status, a.Cause, a.Detail, a.Discarded = out.Status, out.Cause, out.Detail, !kept
	if e.tell(a, entry); kept {
		e.emitter.fetched(e.Config.Cache.Policy, before, before.Origin, out)
	}
}

// Dropped implements robotscache.Observer.
func (o *cacheObserver) Dropped(d robotscache.Drop) { o.dropped.WithLabelValues(string(d)).Inc() }

// StoreFailed implements robotscache.Observer.
func (o *cacheObserver) StoreFailed(op string, _ error) { o.storeErrors.WithLabelValues(op).Inc() }

// StoreAvailable implements robotscache.Observer. The cache calls it once for each change.
func (o *cacheObserver) StoreAvailable(ok bool, err error) {
	o.storeUp.Set(float64(count(ok)))
	if ok {
		o.logger.Info("store of robots.txt records works again")
		return
	}
	o.logger.Error("store of robots.txt records fails; rulesets are kept in memory only", zap.Error(err))
}

// textsDropped counts texts that the store has dropped.
func (o *cacheObserver) textsDropped(n int, early bool) {
	o.texts.WithLabelValues(strconv.FormatBool(early)).Add(float64(n))
	if n == 0 || !early {
		return
	}
	o.full.Do(func() {
		o.logger.Warn("texts of robots.txt are dropped before their time, as there is no more room; said once an hour: set retain_max",
			zap.Int("texts", n), zap.Int64("retain_max", o.fetcher.Load().Config.Store.retention().Filled().Max))
	})
}

// Panicked implements robotscache.Observer.
func (o *cacheObserver) Panicked(k fetch.Key, value any, stack []byte) {
	o.logger.Error("reading robots.txt panicked; the origin counts as unreachable",
		zap.Stringer("origin", k.Origin), zap.Any("panic", value), zap.ByteString("stack", stack))
}

// OtherAgent stands for all senders that no agent block names.
const OtherAgent = "other"

// earlyUnit is how exactly times are kept: with 32 bits, for 13 years.
const earlyUnit = 100 * time.Millisecond

// promises remembers which requests were told to come back later, and when. It has room for 8,192
// in 64 KiB; a further one takes the place of another, which is then not missed. Each place has 32
// bits of a hash and the time, so it is read and written without a lock.
type promises struct {
	start  time.Time
	seed   maphash.Seed
	last   atomic.Int64 // the latest of the times: after it nobody can be early
	places [8192]atomic.Uint64
}

var promised = promises{start: time.Now(), seed: maphash.MakeSeed()}

// CameEarly reports whether the agent was told at its last try of the request to come back later.
func CameEarly(agent string, r *http.Request) bool { return promised.early(agent, r, time.Now()) }

// ComeBack notes that the agent was told to come back with the request at the given time.
func ComeBack(agent string, r *http.Request, at time.Time) { promised.note(agent, r, at) }

func (p *promises) early(agent string, r *http.Request, now time.Time) bool {
	t := p.units(now)
	if t >= p.last.Load() {
		return false
	}
	hash := p.hash(agent, r)
	kept := p.places[hash%uint64(len(p.places))].Load()
	return kept>>32 == hash>>32 && t < int64(kept&0xffffffff)
}

func (p *promises) note(agent string, r *http.Request, at time.Time) {
	t, hash := p.units(at), p.hash(agent, r)
	p.places[hash%uint64(len(p.places))].Store(hash>>32<<32 | uint64(uint32(t)))
	for last := p.last.Load(); last < t && !p.last.CompareAndSwap(last, t); {
		last = p.last.Load()
	}
}

func (p *promises) units(at time.Time) int64 { return int64(at.Sub(p.start) / earlyUnit) }

func (p *promises) hash(agent string, r *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	for _, s := range [...]string{agent, r.Method, r.URL.Scheme, r.URL.Host, r.URL.Path, r.URL.RawQuery} {
		_, _ = h.WriteString(s) // it takes everything
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}
