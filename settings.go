package crawlgate

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/block"
	"github.com/crawlgate/crawlgate/internal/redact"
	"github.com/crawlgate/crawlgate/internal/sockets"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
)

// Defaults and bounds that are not in the configured package.
const (
	maxRetain          = 100 * 365 * 24 * time.Hour
	minRetainMax       = 16 << 20
	minCacheSize       = 1 << 20
	maxFetchTimeout    = 5 * time.Minute
	defaultRate        = "5/s"
	defaultBurst       = 5
	defaultConcurrency = 8
	defaultWait        = 25 * time.Second // docs/politeness.md says why
	defaultBackoffMin  = time.Minute
	defaultBackoffMax  = 24 * time.Hour
	maxGateways        = 1000
	maxGatewayName     = 64
	fetchShare         = 4     // fetches mostly wait, so they may hold one of this many descriptors
	defaultDescriptors = 16384 // if the system does not say
	defaultPerAgent    = 16384
	defaultTunnelAge   = caddy.Duration(24 * time.Hour)
	defaultMinRate     = "100B/s"
	maxMinRate         = 1 << 30 // far above what any crawler sends
	defaultAllowFor    = caddy.Duration(30 * 24 * time.Hour)
)

// settings checks the configuration and converts it to the engine's. Files and placeholders are
// left to [App.resolve], because only the gateway's machine has them.
func (a *App) settings() (c engine.Config, err error) {
	if name := block.Negative(reflect.ValueOf(a).Elem()); name != "" {
		return c, fmt.Errorf("%s is negative", name)
	}
	for _, part := range []struct {
		name string // prefix of its errors; empty if they have one already
		set  func(*engine.Config) error
	}{
		{"", a.setNames},
		{"", a.setRedis},
		{"store: ", a.setStore},
		{"", a.setFetch},
		{"pace: ", a.Pace.set},
		{"fleet: ", a.setFleet},
		{"egress: ", a.Egress.set},
		{"limits: ", a.setLimits},
		{"", checkURLs},
	} {
		if err := part.set(&c); err != nil {
			return engine.Config{}, fmt.Errorf("%s%w", part.name, err)
		}
	}
	c.Signals = *cmp.Or(a.Signals, new(enforce.Signals))
	c.Signals.RobotsTxt, c.Signals.Headers = true, true
	if err := c.Signals.HTML.Check(); err != nil {
		return engine.Config{}, fmt.Errorf("signals: %w", err)
	}
	if c.Redact, err = redact.New(a.Redact); err != nil {
		return engine.Config{}, fmt.Errorf("redact: %w", err)
	}
	if c.AllowFor = time.Duration(defaultAllowFor); a.AllowFor != nil {
		c.AllowFor = time.Duration(*a.AllowFor)
	}
	c.ServeUnlogged = a.Unlogged == "serve"
	return c, enforce.OneOf("unlogged", a.Unlogged, "refuse", "serve")
}

// setNames sets the names of the gateway, and the base of its help pages.
func (a *App) setNames(c *engine.Config) error {
	if strings.ContainsFunc(a.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("user_agent %q: has characters that a header cannot carry", a.UserAgent)
	}
	c.Fetch.UserAgent, c.Anonymous = cmp.Or(a.UserAgent, version.UserAgent()), a.UserAgent == ""
	c.Name, c.Help = a.Gateway, enforce.HelpAt(version.Ref(version.Read()))
	if a.Gateway == "" {
		if name, err := os.Hostname(); err == nil && isGatewayName(name) {
			c.Name = name
		}
	} else if !isGatewayName(a.Gateway) {
		return fmt.Errorf("gateway %q: want up to %d visible ASCII characters", a.Gateway, maxGatewayName)
	}
	if a.Help == "" {
		return nil
	}
	u, err := url.Parse(a.Help)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || !isVisible(a.Help) {
		return errors.New("help: want a URL such as https://wiki.example.com/robots/, without credentials")
	}
	c.Help = enforce.Help{Base: a.Help}
	return nil
}

func isGatewayName(name string) bool { return len(name) <= maxGatewayName && isVisible(name) }

// isVisible reports whether s has only visible ASCII characters.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (a *App) setStore(c *engine.Config) error {
	c.Store = *cmp.Or(a.Store, new(engine.Store))
	if r := a.Redis; r != nil {
		c.Store.Kind = cmp.Or(c.Store.Kind, "redis")
		if c.Store.Kind == "redis" {
			c.Store.URL = cmp.Or(c.Store.URL, r.URL)
		}
	}
	if err := checkStore(&c.Store); err != nil {
		return err
	}
	if c.Store.Kind = cmp.Or(c.Store.Kind, "file"); c.Store.Kind == "file" && c.Store.Path == "" {
		c.Store.Path = filepath.Join(caddy.AppDataDir(), "crawlgate", "robots.db")
	}
	return nil
}

// setFetch sets how robots.txt is fetched, kept and read.
func (a *App) setFetch(c *engine.Config) error {
	cache, f := cmp.Or(a.Cache, new(CacheConfig)), cmp.Or(a.Fetch, new(FetchConfig))
	policy, err := fetchPolicy(cache, f)
	if err != nil {
		return err
	}
	c.Cache.Policy, c.Cache.IndexHTML, c.Cache.MaxSize = policy, a.IndexHTML, cache.MaxSize
	c.Cache.Budget, c.Cache.Parallel = time.Duration(f.Timeout), f.Parallel
	c.Cache.InFlight = sockets.DescriptorLimit() / fetchShare
	c.Fetch.Timeout, c.Fetch.Soft404 = time.Duration(f.Timeout), f.SoftNotFound != "off"
	if err := f.check(); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	return nil
}

func (c *FetchConfig) check() error {
	if c.Timeout > caddy.Duration(maxFetchTimeout) {
		return fmt.Errorf("timeout %s is above 5m: a crawler would wait that long", time.Duration(c.Timeout))
	}
	return enforce.OneOf("soft_404", c.SoftNotFound, "detect", "off")
}

func fetchPolicy(c *CacheConfig, f *FetchConfig) (fetch.Policy, error) {
	modes := []string{"spec", "stale", "google", "strict"} // in the order of their values
	err := cmp.Or(
		enforce.OneOf("fetch: unreachable", f.Unreachable, modes...),
		enforce.OneOf("fetch: forbidden", f.Forbidden, "allow", "disallow"),
	)
	if err != nil {
		return fetch.Policy{}, err
	}
	p := fetch.Policy{
		Mode: fetch.UnreachableMode(max(slices.Index(modes, f.Unreachable), 0)), UnreachableFor: time.Duration(f.UnreachableFor), TTL: time.Duration(c.TTL),
		RetryMin: time.Duration(f.RetryFirst), RetryMax: time.Duration(f.RetryLongest), ForbiddenDisallow: f.Forbidden == "disallow",
	}
	d := p.Complete()
	switch first := cmp.Or(p.RetryMin, d.RetryMin); {
	case c.MaxSize > 0 && c.MaxSize < minCacheSize:
		return p, errors.New("cache: max_size is below 1 MiB: rulesets would be dropped at once")
	case p.TTL > d.TTL:
		return p, fmt.Errorf("cache: ttl %s is above %s, the longest that RFC 9309 section 2.4 permits", p.TTL, d.TTL)
	case p.RetryMax > 0 && first > p.RetryMax:
		return p, fmt.Errorf("fetch: retry: %s is longer than %s", first, p.RetryMax)
	}
	return d, nil
}

func (p *PaceConfig) set(c *engine.Config) (err error) {
	p = cmp.Or(p, new(PaceConfig))
	c.Politeness = enforce.Politeness{
		Burst:       cmp.Or(p.Burst, defaultBurst),
		Concurrency: cmp.Or(p.Concurrency, defaultConcurrency),
		Wait:        defaultWait,
	}
	if p.Wait != nil {
		c.Politeness.Wait = time.Duration(*p.Wait)
	}
	if c.Politeness.Interval, err = pace.ParseRate(cmp.Or(p.Rate, defaultRate)); err != nil {
		return err
	}
	if c.Politeness.CrawlDelay, err = p.CrawlDelay.parse(); err != nil {
		return err
	}
	if c.Politeness.Per, err = parsePer(p.Per); err != nil {
		return err
	}
	c.SharedClocks = cmp.Or(p.Shared, c.SharedClocks)
	c.Clocks = pace.Config{Wait: c.Politeness.Wait, Queue: p.Queue, Idle: c.Politeness.CrawlDelay.Max}
	c.Clocks.Backoff, err = p.Backoff.parse()
	return err
}

func (c *CrawlDelayConfig) parse() (pace.CrawlDelay, error) {
	if c == nil {
		return pace.CrawlDelay{Max: enforce.DefaultMaxCrawlDelay}, nil
	}
	above := cmp.Or(pace.Above(c.Above), pace.Clamp)
	err := enforce.OneOf("crawl_delay: above", above, pace.Clamp, pace.Refuse, pace.Honor)
	if err == nil && c.Min > c.Max {
		err = fmt.Errorf("crawl_delay: %s is longer than %s", time.Duration(c.Min), time.Duration(c.Max))
	}
	return pace.CrawlDelay{Min: time.Duration(c.Min), Max: time.Duration(c.Max), Above: above}, err
}

// parsePer reads the scopes of clocks. The default is one clock per host.
func parsePer(list []string) ([]pace.Scope, error) {
	if len(list) == 0 {
		return []pace.Scope{pace.PerHost}, nil
	}
	var scopes []pace.Scope
	for _, s := range list {
		scope := cmp.Or(pace.Scope(s), pace.PerHost)
		if err := enforce.OneOf("per", scope, pace.PerHost, pace.PerSite, pace.PerAddress); err != nil {
			return nil, err
		}
		if slices.Contains(scopes, scope) {
			return nil, fmt.Errorf("per: %q is given twice", scope)
		}
		scopes = append(scopes, scope)
	}
	return scopes, nil
}

func (c *BackoffConfig) parse() (pace.Backoff, error) {
	if c == nil {
		return pace.Backoff{}, nil
	}
	b := pace.Backoff{
		Off:   c.Off,
		First: cmp.Or(time.Duration(c.First), defaultBackoffMin),
		Max:   cmp.Or(time.Duration(c.Longest), defaultBackoffMax),
	}
	if b.First > b.Max {
		return b, fmt.Errorf("backoff: %s is longer than %s", b.First, b.Max)
	}
	return b, nil
}

func (e *EgressConfig) set(c *engine.Config) error {
	e = cmp.Or(e, new(EgressConfig))
	allowed := new(guard.Guard)
	c.Egress = egress.TransportConfig{
		Dialer:                &egress.Dialer{Guard: allowed, Timeout: time.Duration(e.DialTimeout)},
		ResponseHeaderTimeout: time.Duration(e.ResponseHeaderTimeout),
	}
	var err error
	if allowed.AllowPrivate, err = guard.ParsePrefixes("allow_private", e.AllowPrivate); err != nil {
		return err
	}
	for _, text := range e.Ports {
		r, err := guard.ParsePortRange(text)
		if err != nil {
			return fmt.Errorf("ports: %w", err)
		}
		allowed.Ports = append(allowed.Ports, r)
	}
	if i := slices.IndexFunc(e.Upstreams, func(u UpstreamConfig) bool { return len(u.Hosts) == 0 }); i >= 0 && i < len(e.Upstreams)-1 {
		return errors.New("upstream: one without hosts is for every host, so those after it are never reached: put it last")
	}
	return nil
}

func (a *App) setLimits(c *engine.Config) (err error) {
	l := cmp.Or(a.Limits, new(engine.Limits))
	if l.Connections > 0 && l.ConnectionsPerSource > l.Connections {
		return fmt.Errorf("connections_per_source %d is more than connections %d", l.ConnectionsPerSource, l.Connections)
	}
	s := &c.Limits
	*s = *l
	s.Connections = cmp.Or(l.Connections, cmp.Or(sockets.DescriptorLimit(), defaultDescriptors)*3/4)
	s.ConnectionsPerSource = cmp.Or(l.ConnectionsPerSource, max(s.Connections*3/4, 1))
	s.RequestsPerAgent = cmp.Or(l.RequestsPerAgent, defaultPerAgent)
	s.TunnelAge = cmp.Or(l.TunnelAge, defaultTunnelAge)
	c.MinRate, err = parseMinRate(cmp.Or(l.MinRate, defaultMinRate))
	return err
}

// parseMinRate reads "100B/s", or "off" as 0.
func parseMinRate(s string) (int64, error) {
	if s == "off" {
		return 0, nil
	}
	size, ok := strings.CutSuffix(s, "/s")
	v, err := humanize.ParseBytes(size)
	if !ok || err != nil || v == 0 || v > maxMinRate {
		return 0, fmt.Errorf("min_rate %q: want a rate such as 100B/s or 2KiB/s, or off", s)
	}
	return int64(v), nil
}

// checkURLs checks the URLs of Redis. The fleet's URL comes last, because it may be one of the
// others.
func checkURLs(c *engine.Config) error {
	for _, part := range [][2]string{{"store", c.Store.URL}, {"pace: shared", c.SharedClocks}, {"fleet", c.Fleet.URL}} {
		if err := link.CheckURL(part[1]); part[1] != "" && err != nil {
			return fmt.Errorf("%s: %w", part[0], err)
		}
	}
	return nil
}

// resolve fills in the values that only the gateway's machine has: placeholders, the path of the
// store, and certificates.
func (a *App) resolve(c *engine.Config) (err error) {
	for _, s := range []*string{&c.Store.URL, &c.Store.Path, &c.SharedClocks, &c.Fleet.URL} {
		// A variable that is not set must not mean a gateway on its own.
		if *s, err = caddy.NewReplacer().ReplaceOrErr(*s, true, false); err != nil {
			return err
		}
	}
	if err := checkURLs(c); err != nil {
		return err
	}
	if c.Store.Kind == "file" { // two spellings of one path are one store
		if c.Store.Path, err = filepath.Abs(c.Store.Path); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if a.Egress == nil {
		return nil
	}
	if files := a.Egress.TrustCA; len(files) > 0 {
		pems := make([][]byte, len(files))
		for i, name := range files {
			if pems[i], err = os.ReadFile(name); err != nil {
				return fmt.Errorf("egress: trust_ca: %w", err)
			}
		}
		if c.Egress.RootCAs, err = egress.TrustedRoots(pems...); err != nil {
			return fmt.Errorf("egress: trust_ca %v: %w", files, err)
		}
	}
	for _, u := range a.Egress.Upstreams {
		up, err := u.upstream()
		if err != nil {
			return fmt.Errorf("egress: upstream: %w", err)
		}
		c.Egress.Upstreams = append(c.Egress.Upstreams, up)
	}
	return nil
}

// upstream parses one proxy. Its URL may contain credentials, which errors must not repeat.
func (u UpstreamConfig) upstream() (up egress.Upstream, err error) {
	address, err := caddy.NewReplacer().ReplaceOrErr(u.URL, true, false)
	if err == nil {
		up, err = egress.ParseUpstream(address)
	}
	if err == nil && len(u.Hosts) > 0 {
		up.Match, err = upstreamHosts(u.Hosts)
	}
	return up, err
}

// upstreamHosts matches the hosts of an upstream proxy. Connections to one host share a transport
// for all ports, so patterns with a port are refused.
func upstreamHosts(hosts []string) (func(host string) bool, error) {
	patterns := make([]enforce.HostPattern, len(hosts))
	for i, s := range hosts {
		var err error
		if patterns[i], err = enforce.ParseHostPattern(s); err != nil {
			return nil, err
		}
		if _, _, err := net.SplitHostPort(s); err == nil {
			return nil, fmt.Errorf("host pattern %q: want a host without a port for an upstream", s)
		}
	}
	return func(host string) bool {
		o := origin.Origin{Scheme: "http", Host: host, Port: 80}
		return slices.ContainsFunc(patterns, func(p enforce.HostPattern) bool { return p.Match(o) })
	}, nil
}
