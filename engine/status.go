package engine

import (
	"cmp"
	"crypto/x509"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/version"
)

// statusMetrics tell the status of the current configuration at each collection: what
// ends and when, and which parts are configured. So they follow reloads and renewals.
type statusMetrics struct{}

var (
	statusDescs []*prometheus.Desc // of all that follow

	buildDesc         = statusDesc("build_info", "Always 1, with the versions that the process was built from.", "version", "caddy", "go")
	authorityDesc     = statusDesc("ca_not_after_seconds", "Unix time at which a certificate of the gateway's own authority ends.", "certificate")
	exceptionsDesc    = statusDesc("exceptions", "Exceptions from robots.txt that are in force.")
	exceptionEndsDesc = statusDesc("exception_ends_seconds", "Unix time at which the next exception ends.")
	sharedWantedDesc  = statusDesc("shared_clock_wanted", "1 where the clocks are meant to be shared with other gateways, else 0.")
	sharedUpDesc      = statusDesc("shared_clock_up", "1 while the clocks are shared with other gateways, 0 while they cannot be or are not meant to.")
	fleetUpDesc       = statusDesc("fleet_up", "1 while orders reach the other gateways, 0 while they cannot or there are none.")
	fleetGatewaysDesc = statusDesc("fleet_gateways", "Gateways of the fleet that are alive, this one included.")
	fleetVersionDesc  = statusDesc("fleet_orders_version", "Version of the orders that this gateway has applied last.")
	fleetPendingDesc  = statusDesc("fleet_orders_pending", "Orders and lifts of this gateway that have not reached Redis yet.")
	fleetExpectedDesc = statusDesc("fleet_expected", "Gateways that the fleet should have at least, 0 where that is not known.")
	fleetContactDesc  = statusDesc("fleet_contact_age_seconds", "Time since the Redis of the fleet answered.")
	logUpDesc         = statusDesc("log_up", "1 while the access log takes lines, 0 while it stalls.")
)

func statusDesc(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc("crawlgate_"+name, help, labels, nil)
	statusDescs = append(statusDescs, desc)
	return desc
}

// Describe implements prometheus.Collector.
func (statusMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range statusDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (statusMetrics) Collect(ch chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	caddyVersion, _ := caddy.Version()
	send(buildDesc, 1, version.Read(), caddyVersion, runtime.Version())
	e := Current()
	if e == nil {
		return
	}
	s := e.Status()
	for name, cert := range s.Authority {
		send(authorityDesc, float64(cert.NotAfter.Unix()), name)
	}
	send(exceptionsDesc, float64(s.Exceptions))
	if !s.ExceptionEnds.IsZero() {
		send(exceptionEndsDesc, float64(s.ExceptionEnds.Unix()))
	}
	send(sharedWantedDesc, float64(count(s.SharedWanted)))
	send(sharedUpDesc, float64(count(s.SharedUp)))
	send(logUpDesc, float64(count(!e.log.Stalls())))
	fleet := e.Fleet().State()
	send(fleetUpDesc, float64(count(fleet.Up)))
	send(fleetGatewaysDesc, float64(fleet.Gateways))
	send(fleetVersionDesc, float64(fleet.Version))
	send(fleetPendingDesc, float64(fleet.Pending))
	if e.fleet != nil {
		send(fleetExpectedDesc, float64(e.Config.Fleet.Expect))
		send(fleetContactDesc, time.Since(e.fleet.link.State().Heard).Seconds())
	}
}

// exceptionsOf counts the exceptions of all sites that are in force, and says when the next one of
// them ends; zero if none does.
func exceptionsOf(sites []*SitePolicy, now time.Time) (inForce int, next time.Time) {
	seen := map[*enforce.Policy]bool{}
	for _, s := range sites {
		if s.Operator == nil || seen[s.Operator] {
			continue
		}
		seen[s.Operator] = true
		n, end := s.Operator.InForce(now)
		inForce += n
		if !end.IsZero() && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return inForce, next
}

// Status is the status of the current configuration.
type Status struct {
	Started, Loaded time.Time // of the process, and of the configuration
	// Store is the kind of the store: "file", "redis" or "none".
	Store        string
	StoreUp      bool
	SharedWanted bool // clocks are meant to be shared with other gateways
	SharedUp     bool
	// Authority has the certificates that sites intercept with, by their names, and AuthorityEnds is
	// when the first of them ends. Both are zero where nothing is intercepted.
	Authority     map[string]*x509.Certificate
	AuthorityEnds time.Time
	Exceptions    int       // in force
	ExceptionEnds time.Time // when the next one of them ends; zero if none does
}

var started = time.Now()

// Status returns the status of the configuration. The caller has called Open.
func (e *Engine) Status() Status {
	s := Status{
		Started: started, Loaded: e.loaded, Store: e.Config.Store.Kind, StoreUp: storeUp.Load(),
		SharedWanted: e.Config.SharedClocks != "", SharedUp: e.pacing.shared != nil && e.pacing.link.State().Up,
	}
	sites := e.Sites()
	s.Exceptions, s.ExceptionEnds = exceptionsOf(sites, time.Now())
	if i := slices.IndexFunc(sites, func(s *SitePolicy) bool { return s.Authority != nil }); i >= 0 {
		s.Authority = sites[i].Authority() // all sites have the same
	}
	for _, cert := range s.Authority {
		if s.AuthorityEnds.IsZero() || cert.NotAfter.Before(s.AuthorityEnds) {
			s.AuthorityEnds = cert.NotAfter
		}
	}
	return s
}

// The bounds of the record for the operator's page: an hour, and no more than 1 MiB.
const (
	RecentMinutes  = 60
	recentRefusals = 1000
	recentKinds    = 200 // pairs of reason and agent in a minute; the rest is counted as "other"
	recentURL      = 512 // bytes
	recentText     = 128
)

// RecentRefusal is a request that was refused, or would be in another mode. Its texts are printable
// ASCII.
type RecentRefusal struct {
	At       time.Time
	Agent    string
	Method   string
	URL      string // without user information and secrets
	Reason   string
	Rule     string
	Line     int
	Reported bool // it passed, as the mode is "report"
}

// RefusalKind is a reason for which requests of an agent were refused, or tunnels.
type RefusalKind struct {
	Reason, Agent string
	Tunnel        bool
}

// Minute is one minute of traffic.
type Minute struct {
	Start    time.Time
	Requests int
	Refused  int
	Tunnels  int           // asked for by CONNECT, which is no request
	CPU      time.Duration // of the process, in the minute
	kinds    map[RefusalKind]int
	agents   map[string]AgentCount
}

// AgentCount counts requests of one agent block, and those of them that came back before their
// Retry-After was over.
type AgentCount struct{ Requests, Early int }

func (c AgentCount) plus(o AgentCount) AgentCount {
	return AgentCount{c.Requests + o.Requests, c.Early + o.Early}
}

// Recent is what the gateway did in the last hour.
type Recent struct {
	// Minutes has the last [RecentMinutes], oldest first. The last one is not over.
	Minutes []Minute
	// Refusals are the last ones, newest first.
	Refusals []RecentRefusal
	// Kinds counts the refusals of the hour, those of pairs beyond a bound together as "other".
	Kinds map[RefusalKind]int
	// Agents counts the requests of each agent block, those of all other senders as [OtherAgent].
	Agents map[string]AgentCount
}

// recorder keeps what the operator's page shows of the last hour. It records only while somebody
// wants it, and outlives reloads. It is safe for concurrent use.
type recorder struct {
	wanted atomic.Int32

	mu       sync.Mutex
	minutes  [RecentMinutes]Minute // by the minute modulo their number
	last     time.Time             // the beginning of the newest minute
	cpu      time.Duration         // of the process, when that began
	refusals [recentRefusals]RecentRefusal
	next     int // the place of the next refusal
}

var recent recorder

// Record has the last hour recorded for the page of a server, and keeps requests through the
// gateway from that server, until stop is called, once.
func Record(server *caddyhttp.Server) (stop func()) {
	recent.wanted.Add(1)
	pages.Store(server, true)
	return sync.OnceFunc(func() {
		recent.wanted.Add(-1)
		pages.Delete(server)
	})
}

// pages are the servers with an operator's page, of all configurations that Caddy has not ended.
var pages sync.Map // of *caddyhttp.Server

func (r *recorder) add(now time.Time, method, block string, early bool, refusal *RecentRefusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, tunnel := r.minute(now), method == http.MethodConnect
	m.Requests += count(!tunnel)
	m.Tunnels += count(tunnel)
	if !tunnel {
		if m.agents == nil {
			m.agents = make(map[string]AgentCount) // of the configuration, so their number is bounded
		}
		m.agents[block] = m.agents[block].plus(AgentCount{1, count(early)})
	}
	if refusal == nil {
		return
	}
	r.refusals[r.next] = *refusal
	r.next = (r.next + 1) % recentRefusals
	m.Refused += count(!tunnel)
	kind := RefusalKind{refusal.Reason, refusal.Agent, tunnel}
	if _, known := m.kinds[kind]; !known && len(m.kinds) >= recentKinds {
		kind = RefusalKind{"other", "other", tunnel}
	}
	if m.kinds == nil {
		m.kinds = make(map[RefusalKind]int)
	}
	m.kinds[kind]++
}

// minute gives the minute of now, under the lock. The CPU time since the last call that began one
// counts evenly for all minutes since.
func (r *recorder) minute(now time.Time) *Minute {
	start := now.Truncate(time.Minute)
	if start.After(r.last) || r.last.Sub(start) > time.Minute { // or the clock was set back
		used := processTime()
		passed := int(min(start.Sub(r.last)/time.Minute, RecentMinutes))
		if r.last.IsZero() || passed < 1 {
			r.minutes, r.cpu, passed = [RecentMinutes]Minute{}, used, 1
		}
		share := (used - r.cpu) / time.Duration(passed)
		for i := passed - 1; i >= 0; i-- {
			at := start.Add(-time.Duration(i) * time.Minute)
			r.at(at.Add(-time.Minute)).CPU = share
			*r.at(at) = Minute{Start: at}
		}
		r.last, r.cpu = start, used
	}
	return r.at(start)
}

func (r *recorder) at(start time.Time) *Minute {
	return &r.minutes[(start.Unix()/60)%RecentMinutes]
}

// LastHour tells of the last hour, as far as it was recorded.
func LastHour() Recent { return recent.lastHour(time.Now()) }

func (r *recorder) lastHour(now time.Time) Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now)
	h := Recent{Kinds: make(map[RefusalKind]int), Agents: make(map[string]AgentCount)}
	for _, m := range r.minutes {
		if m.Start.IsZero() {
			continue
		}
		for kind, n := range m.kinds {
			h.Kinds[kind] += n
		}
		for agent, n := range m.agents {
			h.Agents[agent] = h.Agents[agent].plus(n)
		}
		m.kinds, m.agents = nil, nil
		h.Minutes = append(h.Minutes, m)
	}
	slices.SortFunc(h.Minutes, func(a, b Minute) int { return a.Start.Compare(b.Start) })
	for i := range recentRefusals {
		refusal := r.refusals[(r.next-1-i+recentRefusals)%recentRefusals]
		if refusal.At.IsZero() || now.Sub(refusal.At) > time.Hour {
			break
		}
		h.Refusals = append(h.Refusals, refusal)
	}
	return h
}

// TopKinds gives the kinds of refusals, the most frequent first.
func (h Recent) TopKinds() []RefusalKind {
	return slices.SortedFunc(maps.Keys(h.Kinds), func(a, b RefusalKind) int {
		return cmp.Or(h.Kinds[b]-h.Kinds[a], cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Agent, b.Agent), cmp.Compare(count(a.Tunnel), count(b.Tunnel)))
	})
}

// TopAgents gives the agent blocks, those first that came back too early most often.
func (h Recent) TopAgents() []string {
	return slices.SortedFunc(maps.Keys(h.Agents), func(a, b string) int {
		return cmp.Or(h.Agents[b].Early-h.Agents[a].Early, h.Agents[b].Requests-h.Agents[a].Requests, cmp.Compare(a, b))
	})
}

// processTime is the CPU time of the process so far, of user and system.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
