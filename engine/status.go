package engine

import (
	"crypto/x509"
	"runtime"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/caddylog"
	"github.com/crawlgate/crawlgate/internal/version"
)

// statusMetrics collects the status of the current configuration at each scrape: when certificates
// and exceptions end, and which parts are configured. So it follows reloads and renewals.
type statusMetrics struct{}

var (
	statusDescs []*prometheus.Desc // all descriptions that statusDesc made

	buildDesc         = statusDesc("build_info", "Always 1; the labels are the versions of the gateway, of Caddy and of Go.", "version", "caddy", "go")
	authorityDesc     = statusDesc("ca_not_after_seconds", "Unix time at which the root and the intermediate of the gateway's own authority end; absent if nothing is intercepted.", "certificate")
	exceptionsDesc    = statusDesc("exceptions", "Exceptions in force: those of the configuration, and those given at run time that apply at this gateway.")
	exceptionEndsDesc = statusDesc("exception_ends_seconds", "Unix time at which the next exception of the configuration ends or the next agent expires; absent if none does.")
	sharedWantedDesc  = statusDesc("shared_clock_wanted", "1 if the configuration shares the clocks, else 0.")
	sharedUpDesc      = statusDesc("shared_clock_up", "1 while the clocks are shared with other gateways, 0 while they cannot be or should not be.")
	fleetUpDesc       = statusDesc("fleet_up", "1 while stops reach the other gateways, 0 while they cannot or there is no fleet.")
	fleetGatewaysDesc = statusDesc("fleet_gateways", "Gateways of the fleet that are alive, this one included.")
	fleetVersionDesc  = statusDesc("fleet_orders_version", "Version of the stops that this gateway applied last; it goes back if Redis was emptied.")
	fleetPendingDesc  = statusDesc("fleet_orders_pending", "Stops and lifts of this gateway that have not reached Redis yet.")
	fleetActionsDesc  = statusDesc("fleet_actions_pending", "Purges and refreshes given at this gateway that wait for Redis; a restart loses them.")
	fleetExpectedDesc = statusDesc("fleet_expected", "Minimum number of gateways by expect, 0 if it is not set; absent without a fleet.")
	fleetContactDesc  = statusDesc("fleet_contact_age_seconds", "Time since the Redis of the fleet answered or, before its first answer, since the gateway asked; absent without a fleet.")
	budgetLeftDesc    = statusDesc("budget_left", "Requests or bytes (what) that an agent with a budget has left today, as far as this gateway knows.", "agent", "what")
	budgetLimitDesc   = statusDesc("budget_limit", "Requests or bytes (what) that an agent with a budget may use per day.", "agent", "what")
	logUpDesc         = statusDesc("log_up", "1 while the access log takes lines, 0 while it stalls.")

	// The operator chooses the names of the sealed logs, so their number is bounded.

	sealedUpDesc          = statusDesc("evidence_up", "1 while a sealed access log is written and sealed, 0 while it cannot be.", "log")
	sealedLinesDesc       = statusDesc("evidence_lines_total", "Lines written into a sealed log.", "log")
	sealedUnsealedDesc    = statusDesc("evidence_unsealed_lines", "Lines that no checkpoint covers yet.", "log")
	sealedCheckpointDesc  = statusDesc("evidence_checkpoint_age_seconds", "Age of the newest checkpoint.", "log")
	sealedWitnessDesc     = statusDesc("evidence_witness_age_seconds", "Time since a witness cosigned a checkpoint.", "log", "witness")
	sealedUnwitnessedDesc = statusDesc("evidence_unwitnessed_total", "Checkpoints that no witness cosigned.", "log")
	sealedLostDesc        = statusDesc("evidence_lost_total", "Lines that could not be written, as on a full disk.", "log")
	sealedOldestDesc      = statusDesc("evidence_oldest_line_seconds", "Unix time of the oldest line that is kept, updated every 10 minutes; absent if the times are neither numbers nor RFC 3339.", "log")
	sealedKeptDesc        = statusDesc("evidence_kept", "1 while files are kept for as long as roll_keep_for says, 0 while roll_keep drops them before.", "log")
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
	collectSealed(ch, send)
	caddyVersion, _ := caddy.Version()
	send(buildDesc, 1, version.Read(), caddyVersion, runtime.Version())
	byAgent.collect(ch)
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
	for _, b := range e.Budgets() {
		for what, n := range b.Limited() {
			send(budgetLeftDesc, float64(n[0]), b.Agent, what)
			send(budgetLimitDesc, float64(n[1]), b.Agent, what)
		}
	}
	fleet := e.Fleet().State()
	send(fleetUpDesc, float64(count(fleet.Up)))
	send(fleetGatewaysDesc, float64(fleet.Gateways))
	send(fleetVersionDesc, float64(fleet.Version))
	send(fleetPendingDesc, float64(fleet.Pending))
	send(fleetActionsDesc, float64(fleet.Queued))
	if e.fleet != nil {
		send(fleetExpectedDesc, float64(e.Config.Fleet.Expect))
		send(fleetContactDesc, time.Since(e.fleet.link.State().Heard).Seconds())
	}
}

// collectSealed collects the state of the sealed logs.
func collectSealed(ch chan<- prometheus.Metric, send func(desc *prometheus.Desc, value float64, labels ...string)) {
	for _, f := range caddylog.Files() {
		send(sealedKeptDesc, float64(count(f.Kept)), f.Name)
		if !f.Oldest.IsZero() {
			send(sealedOldestDesc, float64(f.Oldest.Unix()), f.Name)
		}
	}
	for _, s := range SealedLogs() {
		for desc, n := range map[*prometheus.Desc]int64{sealedLinesDesc: s.Lines, sealedLostDesc: s.Lost, sealedUnwitnessedDesc: s.Unwitnessed} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), s.Name)
		}
		send(sealedUpDesc, float64(count(s.Error == "")), s.Name)
		send(sealedUnsealedDesc, float64(s.Unsealed), s.Name)
		send(sealedCheckpointDesc, time.Since(s.Time).Seconds(), s.Name)
		for name, w := range s.Witnesses {
			if !w.Time.IsZero() {
				send(sealedWitnessDesc, time.Since(w.Time).Seconds(), s.Name, name)
			}
		}
	}
}

// exceptionsOf counts the exceptions of all sites in force. It returns when the next one of them
// ends or the next agent expires, or zero.
func exceptionsOf(sites []*SitePolicy, now time.Time) (inForce int, next time.Time) {
	ends := func(end time.Time) {
		if end.After(now) && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	for _, s := range sites {
		n, end := s.Operator.InForce(now)
		inForce += n
		ends(end)
		for _, a := range s.Identifier.Agents() {
			ends(a.End())
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
	SharedWanted bool // clocks should be shared with other gateways
	SharedUp     bool
	// Authority has the certificates that sites intercept with, by name, and AuthorityEnds is when
	// the first of them expires. Both are zero if nothing is intercepted.
	Authority     map[string]*x509.Certificate
	AuthorityEnds time.Time
	Exceptions    int       // in force, including those given at run time
	ExceptionEnds time.Time // when the next one of the configuration ends or an agent expires, or zero
}

var started = time.Now()

// Status returns the status of the configuration. The caller must have called Open.
func (e *Engine) Status() Status {
	s := Status{
		Started: started, Loaded: e.loaded, Store: e.Config.Store.Kind, StoreUp: storeUp.Load(),
		SharedWanted: e.Config.SharedClocks != "", SharedUp: e.pacing.shared != nil && e.pacing.link.State().Up,
	}
	sites := e.Sites()
	now := time.Now()
	s.Exceptions, s.ExceptionEnds = exceptionsOf(sites, now)
	for _, order := range e.Stops().All().Held {
		_, holds := order.Holds(now, e.Config.AllowFor)
		s.Exceptions += count(holds && order.Scope == enforce.StopAllow)
	}
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
