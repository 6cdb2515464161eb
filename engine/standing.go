package engine

import (
	"crypto/x509"
	"runtime"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/version"
)

// standingMetrics tell how the current configuration stands, whenever metrics are asked for: what
// ends and when, and what is meant to be there. So they follow reloads and renewals.
type standingMetrics struct {
	build, authority, exceptions, exceptionEnds, sharedWanted, fleetExpected, fleetContact, logUp *prometheus.Desc
}

func newStandingMetrics() *standingMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("crawlgate_"+name, help, labels, nil)
	}
	return &standingMetrics{
		build:         desc("build_info", "Always 1, with the versions that the process was built from.", "version", "caddy", "go"),
		authority:     desc("ca_not_after_seconds", "Unix time at which a certificate of the gateway's own authority ends.", "certificate"),
		exceptions:    desc("exceptions", "Exceptions from robots.txt that are in force."),
		exceptionEnds: desc("exception_ends_seconds", "Unix time at which the next exception ends."),
		sharedWanted:  desc("shared_clock_wanted", "1 where the clocks are meant to be shared with other gateways, else 0."),
		fleetExpected: desc("fleet_expected", "Gateways that the fleet should have at least, 0 where that is not known."),
		fleetContact:  desc("fleet_contact_age_seconds", "Time since the Redis of the fleet answered."),
		logUp:         desc("log_up", "1 while the access log takes lines, 0 while it stalls."),
	}
}

// Describe implements prometheus.Collector.
func (m *standingMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.build, m.authority, m.exceptions, m.exceptionEnds, m.sharedWanted, m.fleetExpected, m.fleetContact, m.logUp,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *standingMetrics) Collect(ch chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	caddyVersion, _ := caddy.Version()
	send(m.build, 1, version.Read(), caddyVersion, runtime.Version())
	e := Current()
	if e == nil {
		return
	}
	sites, now := e.Sites(), time.Now()
	for name, cert := range authorityOf(sites) {
		send(m.authority, float64(cert.NotAfter.Unix()), name)
	}
	inForce, next := exceptionsOf(sites, now)
	send(m.exceptions, float64(inForce))
	if !next.IsZero() {
		send(m.exceptionEnds, float64(next.Unix()))
	}
	send(m.sharedWanted, float64(count(e.Config.SharedClocks != "")))
	send(m.logUp, float64(count(!e.log.Stalls())))
	if e.fleet != nil {
		send(m.fleetExpected, float64(e.Config.Fleet.Expect))
		send(m.fleetContact, now.Sub(*e.fleet.heard.Load()).Seconds())
	}
}

// authorityOf gives the certificates that sites intercept with, by what they are; none where
// nothing is intercepted. All sites have the same authority.
func authorityOf(sites []*SitePolicy) map[string]*x509.Certificate {
	for _, s := range sites {
		if s.Authority != nil {
			return s.Authority()
		}
	}
	return nil
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

// Standing is how the current configuration stands.
type Standing struct {
	Started, Loaded time.Time // of the process, and of the configuration
	// Store is the kind of the store: "file", "redis" or "none".
	Store        string
	StoreUp      bool
	SharedWanted bool // clocks are meant to be shared with other gateways
	SharedUp     bool
	// AuthorityEnds is when the first certificate of the authority ends, zero where nothing is
	// intercepted.
	AuthorityEnds time.Time
	Exceptions    int // in force
}

var started = time.Now()

// Standing tells how the configuration stands. The caller has called [Engine.Open].
func (e *Engine) Standing() Standing {
	s := Standing{
		Started: started, Loaded: e.loaded, Store: e.Config.Store.Kind, StoreUp: instruments.storeUp.up.Load(),
		SharedWanted: e.Config.SharedClocks != "", SharedUp: instruments.sharedUp.up.Load(),
	}
	for _, cert := range authorityOf(e.Sites()) {
		if s.AuthorityEnds.IsZero() || cert.NotAfter.Before(s.AuthorityEnds) {
			s.AuthorityEnds = cert.NotAfter
		}
	}
	s.Exceptions, _ = exceptionsOf(e.Sites(), time.Now())
	return s
}
