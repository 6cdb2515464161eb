package engine

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/redact"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// collectors has the metrics of the process. Caddy makes a registry for each configuration. This
// one is made once and registered with each of them, so that no reload sets a counter back.
// docs/metrics-reference.md is made of their help texts.
var collectors = prometheus.NewRegistry()

// What the gateway does. No label contains a host, a path, a user agent or a name that a client can
// choose, because the number of values must stay small.
var (
	decisionsTotal    = counter("decisions_total", "Requests by decision and reason, as in the access log. A CONNECT is not a request: crawlgate_tunnel_decisions_total counts it.", "decision", "reason")
	statesTotal       = counter("decision_states_total", "Decisions about requests and blind tunnels, by the state of the origin's robots.txt.", "state")
	preferencesTotal  = counter("preferences_total", "Purposes of the agents of requests and blind tunnels, by the preference of the site: y, n or unknown.", "purpose", "value")
	lookupsTotal      = counter("lookups_total", "Lookups of rulesets by source; error if there was no result.", "source")
	fetchesTotal      = counter("fetches_total", "Fetches of robots.txt by outcome and cause.", "outcome", "cause")
	fetchSeconds      = histogram("fetch_seconds", "Duration of fetches of robots.txt.", .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20)
	fetchQueueSeconds = histogram("fetch_queue_seconds", "Time that fetches waited for their turn.", .001, .01, .1, .5, 1, 5, 20)
	droppedTotal      = counter("dropped_total", "Work given up at a bound: requests (waiter, queue, agent), background fetches (refresh), records (unsaved) and events (event).", "what")
	storeErrorsTotal  = counter("store_errors_total", "Failed operations of the store.", "operation")
	storeUp           = flag("store_up", "1 while the store works, 0 while it fails.", true)
	textsTotal        = counter("texts_dropped_total", "Texts of robots.txt that the store dropped: after retain (early is false), or before it because retain_max was reached (true).", "early")
	paceWaitSeconds   = histogram("pace_wait_seconds", "Time that requests were held for politeness.", .001, .01, .1, .5, 1, 2, 5, 10, 30)
	paceRefusalsTotal = counter("pace_refusals_total", "Requests refused for politeness, by reason.", "reason")
	hostBlocksTotal   = counter("host_blocks_total", "Hosts blocked after 429, 430 or 503; explicit says whether the answer had Retry-After.", "explicit")
	tunnelsSaidTotal  = counter("tunnel_decisions_total", "CONNECT tunnels by decision and reason. inside is seen if their requests count in crawlgate_decisions_total, else unseen.", "decision", "reason", "inside")
	lostTotal         = counter("log_lost_total", "Lines that the access log lacks: of requests answered while it stalled, and about robots.txt, also after a failed write.").WithLabelValues()

	// Other packages count these. The reason of a refused connection may be "unreadable".

	PaymentsTotal           = counter("payment_required_total", "Requests that a site answered with 402 (Payment Required).").WithLabelValues()
	TunnelsTotal            = counter("tunnels_total", "CONNECT tunnels opened, by the first protocol inside: tls, http, silent, closed or other.", "kind")
	TunnelsOpen             = gauge("tunnels_open", "CONNECT tunnels open now.")
	HandshakeFailuresTotal  = counter("handshake_failures_total", "Failed TLS handshakes of clients inside tunnels; untrusted is a client that does not trust the gateway's certificate.", "reason")
	ConnectionsRefusedTotal = counter("connections_refused_total", "Connections of clients that were closed: at the limit connections (total) or connections_per_source (source), or because a request could not be read (unreadable; over HTTP/2 not for a malformed field or a header beyond the limit).", "reason")
)

func init() {
	byAgent.follow(nil)
	collectors.MustRegister(statusMetrics{})
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(collectors).NewCounterVec(prometheus.CounterOpts{Namespace: "crawlgate", Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return promauto.With(collectors).NewHistogram(prometheus.HistogramOpts{Namespace: "crawlgate", Name: name, Help: help, Buckets: buckets})
}

func gauge(name, help string) prometheus.Gauge {
	return promauto.With(collectors).NewGauge(prometheus.GaugeOpts{Namespace: "crawlgate", Name: name, Help: help})
}

// flag makes a gauge of 0 and 1, and returns the value that it shows.
func flag(name, help string, up bool) *atomic.Bool {
	shown := new(atomic.Bool)
	shown.Store(up)
	promauto.With(collectors).NewGaugeFunc(prometheus.GaugeOpts{Namespace: "crawlgate", Name: name, Help: help},
		func() float64 { return float64(count(shown.Load())) })
	return shown
}

// count returns 1 for true and 0 for false.
func count(found bool) int {
	if found {
		return 1
	}
	return 0
}

// RegisterMetrics adds all collectors to the registry of a configuration. Adding them again is not
// an error.
func RegisterMetrics(registry prometheus.Registerer) error {
	err := registry.Register(collectors)
	if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !already {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// CountDecision counts one request or, for a CONNECT, one tunnel. Requests in an intercepted tunnel
// are counted individually. agent is the sender, or nil if no agent block names it. early says that
// it came back before its Retry-After was over. received is the number of bytes of the answer's
// body.
func CountDecision(d enforce.Decision, method string, agent *enforce.Agent, early bool, received int64) {
	switch {
	case method != http.MethodConnect:
		decisionsTotal.WithLabelValues(d.Outcome(), string(d.Reason)).Inc()
		byAgent.count(&d, agent, early, received)
	case d.PathVisible:
		tunnelsSaidTotal.WithLabelValues(d.Outcome(), string(d.Reason), "seen").Inc()
		return
	default:
		tunnelsSaidTotal.WithLabelValues(d.Outcome(), string(d.Reason), "unseen").Inc()
	}
	statesTotal.WithLabelValues(d.State.String()).Inc()
	for _, purpose := range d.Purposes { // from the configuration, so their number is bounded
		preferencesTotal.WithLabelValues(purpose, d.Preferences.Value(purpose).String()).Inc()
	}
}

// RecordRecent records a request or a tunnel for the operator's page, if there is one. block is the
// name of the agent, or [OtherAgent]; early is as for [CountDecision]; target returns the URL or
// authority of the request.
func RecordRecent(d *enforce.LogRecord, method, block string, early bool, target func() string) {
	if recent.wanted.Load() == 0 {
		return
	}
	q := RecentRefusal{At: time.Now(), Block: block, Origin: d.Origin}
	if method == http.MethodConnect {
		q.Method = method
	}
	if d.Decision == enforce.OutcomeDeny || d.WouldDeny {
		text := func(s string) string { return strings.Clone(escape.ASCII(s, recentText)) } // a rule is a part of its robots.txt
		q.Agent, q.Method, q.Rule, q.Reason, q.Line, q.Reported = text(d.Agent), text(method), text(d.Rule), string(d.Reason), d.Line, d.WouldDeny
		q.URL = escape.ASCII(redact.Target(method, target()), recentURL)
	}
	recent.add(q, early, d.WaitMillis > 0, d.Decision == enforce.OutcomeError)
}

var unread = rate.Sometimes{Interval: time.Second} // of the lines below

// RequestUnread counts and logs a request that net/http cannot read and calls no handler for. The
// fields say how it ended.
func RequestUnread(fields ...zap.Field) {
	ConnectionsRefusedTotal.WithLabelValues("unreadable").Inc()
	unread.Do(func() {
		caddy.Log().Named("http.handlers.robots").Warn("a request cannot be read; logged once a second", fields...)
	})
}

// clockObserver counts the pacer's events, and saves its state when it changes.
type clockObserver struct{ *pacing }

// Granted implements pace.Observer.
func (o clockObserver) Granted(wait time.Duration, kept bool) {
	paceWaitSeconds.Observe(wait.Seconds())
	if kept {
		o.note()
	}
}

// Refused implements pace.Observer.
func (o clockObserver) Refused(reason pace.Reason) {
	paceRefusalsTotal.WithLabelValues(string(reason)).Inc()
}

// Blocked implements pace.Observer.
func (o clockObserver) Blocked(explicit bool) {
	hostBlocksTotal.WithLabelValues(strconv.FormatBool(explicit)).Inc()
	o.note()
}

// cacheObserver counts the cache's events, and logs those that an operator should know.
type cacheObserver struct {
	logger  *zap.Logger
	fetcher *currentFetcher
	short   rate.Sometimes // limits the log lines about shortages of the machine
	full    rate.Sometimes // limits the log lines about shortages of the store
}

// Looked implements robotscache.Observer.
func (o *cacheObserver) Looked(s robotscache.Source, err error) {
	if err != nil {
		lookupsTotal.WithLabelValues("error").Inc()
		return
	}
	lookupsTotal.WithLabelValues(s.String()).Inc()
}

// Fetched implements robotscache.Observer.
func (o *cacheObserver) Fetched(k fetch.Key, out fetch.Outcome, queued time.Duration) {
	fetchesTotal.WithLabelValues(out.Kind.String(), string(out.Cause)).Inc()
	fetchSeconds.Observe(out.Duration.Seconds())
	fetchQueueSeconds.Observe(queued.Seconds())
	if out.Kind == fetch.KindRules && robotstxt.IsUTF16(out.Body) {
		o.logger.Warn("robots.txt is in UTF-16, not UTF-8; nothing in it can be read, so it allows everything", zap.Stringer("origin", k.Origin))
	}
	if out.Ours() {
		o.short.Do(func() {
			o.logger.Error("robots.txt cannot be fetched because of a fault of this machine or of the upstream proxy; logged once a minute",
				zap.Stringer("origin", k.Origin), zap.String("cause", string(out.Cause)), zap.String("detail", out.Detail))
		})
	}
}

// Recorded implements robotscache.Observer. It reports a fetch and its changes by the current
// configuration.
func (o *cacheObserver) Recorded(before fetch.Record, entry *robotscache.Entry, out fetch.Outcome, kept bool) {
	e, a := o.fetcher.Load(), robotscache.AnswerOf(robotscache.EventFetched, before.Key(), entry, time.Now())
	a.Status, a.Cause, a.Detail, a.Discarded = out.Status, out.Cause, out.Detail, !kept
	if e.tell(a, entry); kept {
		e.emitter.fetched(e.Config.Cache.Policy, before, out)
	}
}

// Dropped implements robotscache.Observer.
func (o *cacheObserver) Dropped(d robotscache.Drop) { droppedTotal.WithLabelValues(string(d)).Inc() }

// StoreFailed implements robotscache.Observer.
func (o *cacheObserver) StoreFailed(op string, _ error) { storeErrorsTotal.WithLabelValues(op).Inc() }

// StoreAvailable implements robotscache.Observer. The cache calls it once for each change.
func (o *cacheObserver) StoreAvailable(ok bool, err error) {
	storeUp.Store(ok)
	if ok {
		o.logger.Info("store of robots.txt records works again")
		return
	}
	o.logger.Error("store of robots.txt records fails; rulesets are kept in memory only", zap.Error(err))
}

// textsDropped counts texts that the store has dropped.
func (o *cacheObserver) textsDropped(n int, early bool) {
	textsTotal.WithLabelValues(strconv.FormatBool(early)).Add(float64(n))
	if n == 0 || !early {
		return
	}
	o.full.Do(func() {
		o.logger.Warn("texts of robots.txt are dropped before their time, because there is no more room; logged once an hour: set retain_max",
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

var (
	agentDecisionsDesc = statusDesc("agent_decisions_total", "Requests by the agent block of their sender and its owner, by decision and reason; other stands for senders that no block names.", "agent", "owner", "decision", "reason")
	agentEarlyDesc     = statusDesc("early_requests_total", "Requests repeated before the Retry-After of the last answer was over: same agent, method and URL. 8,192 refusals are remembered.", "agent", "owner")
	agentHeldDesc      = statusDesc("agent_held_seconds_total", "Time that requests were held for politeness.", "agent", "owner")
	agentReceivedDesc  = statusDesc("agent_received_bytes_total", "Bytes of the bodies that crawlers received from sites, without WebSockets and blind tunnels.", "agent", "owner")
	agentSignedDesc    = statusDesc("agent_signatures_total", "Requests and fetches of robots.txt of agents that sign: signed, or why not (egress_off, no_key, scheme, tunnel).", "agent", "owner", "result")
	agentRejectedDesc  = statusDesc("agent_signed_rejected_total", "Signed requests that a site answered with 401 or 403.", "agent", "owner", "status")
)

// agentMetrics counts requests by agent block. It knows only the agents of running configurations,
// so their number is bounded over any number of reloads. A request of any other agent counts as
// other. It is safe for concurrent use.
type agentMetrics struct {
	known atomic.Pointer[map[agentLabels]*agentCounts] // replaced at each start and end of a configuration, never changed
}

type agentLabels struct{ agent, owner string }

type agentCounts struct {
	mu        sync.Mutex
	decisions map[[2]string]int // by decision and reason
	early     int
	held      time.Duration
	received  int64
	signed    map[string]int // by result
	rejected  map[int]int    // of these, by status
}

var byAgent agentMetrics

// follow counts the agents of the given sites from now on, and forgets all others. Counters of
// agents that stay continue.
func (m *agentMetrics) follow(sites []*SitePolicy) {
	var before map[agentLabels]*agentCounts
	if known := m.known.Load(); known != nil {
		before = *known
	}
	now := make(map[agentLabels]*agentCounts)
	know := func(l agentLabels) {
		now[l] = cmp.Or(before[l], now[l], &agentCounts{decisions: make(map[[2]string]int), signed: make(map[string]int), rejected: make(map[int]int)})
	}
	know(agentLabels{OtherAgent, OtherAgent})
	for _, s := range sites {
		for _, a := range s.Identifier.Agents() {
			know(agentLabels{a.Name, a.Owner})
		}
	}
	m.known.Store(&now)
}

// countsOf returns the counts of an agent.
func (m *agentMetrics) countsOf(agent *enforce.Agent) *agentCounts {
	known := *m.known.Load()
	c := known[agentLabels{OtherAgent, OtherAgent}]
	if agent != nil {
		c = cmp.Or(known[agentLabels{agent.Name, agent.Owner}], c)
	}
	return c
}

// CountSignature counts a request of an agent by its signature, and by the status of its answer if
// there is one. It does not count a request of an agent that does not sign.
func CountSignature(agent *enforce.Agent, s enforce.Signature, status int) {
	if s != (enforce.Signature{}) {
		byAgent.countSignature(agent, s, status)
	}
}

func (m *agentMetrics) countSignature(agent *enforce.Agent, s enforce.Signature, status int) {
	c := m.countsOf(agent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signed[cmp.Or(s.Unsigned, "signed")]++
	if s.Key != "" && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
		c.rejected[status]++
	}
}

func (m *agentMetrics) count(d *enforce.Decision, agent *enforce.Agent, early bool, received int64) {
	c := m.countsOf(agent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decisions[[2]string{d.Outcome(), string(d.Reason)}]++
	c.early += count(early)
	c.held += d.Wait
	c.received += received
}

func (m *agentMetrics) collect(ch chan<- prometheus.Metric) {
	var all []prometheus.Metric // so that nothing is sent under a lock
	for l, c := range *m.known.Load() {
		add := func(desc *prometheus.Desc, value float64, labels ...string) {
			all = append(all, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, append([]string{l.agent, l.owner}, labels...)...))
		}
		c.mu.Lock()
		for why, n := range c.decisions {
			add(agentDecisionsDesc, float64(n), why[:]...)
		}
		add(agentEarlyDesc, float64(c.early))
		add(agentHeldDesc, c.held.Seconds())
		add(agentReceivedDesc, float64(c.received))
		for result, n := range c.signed {
			add(agentSignedDesc, float64(n), result)
		}
		for status, n := range c.rejected {
			add(agentRejectedDesc, float64(n), strconv.Itoa(status))
		}
		c.mu.Unlock()
	}
	for _, metric := range all {
		ch <- metric
	}
}

// promises remembers which requests got a Retry-After, and its time. It has room for 8,192 of them.
// A further one replaces another, which is then forgotten. It is read and written without a lock.
type promises struct {
	seed   maphash.Seed
	last   atomic.Pointer[time.Time] // the latest of the times: after it, no request is early
	places [8192]atomic.Pointer[promise]
}

// promise is a request, by its hash, and when it may come back.
type promise struct {
	hash uint64
	at   time.Time
}

var promised = promises{seed: maphash.MakeSeed()}

// CameEarly reports whether the agent repeats the request before its Retry-After is over.
func CameEarly(agent string, r *http.Request) bool { return promised.early(agent, r, time.Now()) }

// ComeBack records that the agent was told to repeat the request at the given time.
func ComeBack(agent string, r *http.Request, at time.Time) { promised.note(agent, r, at) }

func (p *promises) early(agent string, r *http.Request, now time.Time) bool {
	if last := p.last.Load(); last == nil || !now.Before(*last) {
		return false
	}
	hash := p.hash(agent, r)
	kept := p.places[hash%uint64(len(p.places))].Load()
	return kept != nil && kept.hash == hash && now.Before(kept.at)
}

func (p *promises) note(agent string, r *http.Request, at time.Time) {
	hash := p.hash(agent, r)
	p.places[hash%uint64(len(p.places))].Store(&promise{hash, at})
	for last := p.last.Load(); (last == nil || last.Before(at)) && !p.last.CompareAndSwap(last, &at); {
		last = p.last.Load()
	}
}

func (p *promises) hash(agent string, r *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	for _, s := range [...]string{agent, r.Method, r.URL.Scheme, r.URL.Host, r.URL.Path, r.URL.RawQuery} {
		_, _ = h.WriteString(s) // it takes everything
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}
