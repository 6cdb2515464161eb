package crawlgate

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/redact"
	"github.com/crawlgate/crawlgate/internal/version"
)

// settings is the App's configuration with every default filled in and every text parsed: what the engine runs
// with. It is a value; nothing changes it after it was made.
type settings struct {
	userAgent string
	gateway   string
	help      enforce.Help
	store     StoreConfig
	maxSize   int64
	policy    fetch.Policy
	indexHTML bool
	redact    redact.Fields
	fetch     fetchSettings
	pace      paceSettings
	egress    egressSettings
	limits    limitsSettings
}

type fetchSettings struct {
	timeout      time.Duration
	maxRedirects int
	maxSize      int
	soft404      bool
	parallel     int
}

type paceSettings struct {
	enforce.Politeness
	queue      int
	backoff    bool
	backoffMin time.Duration
	backoffMax time.Duration
	shared     string
	gateways   int
}

type egressSettings struct {
	allowPrivate          []netip.Prefix
	ports                 []egress.PortRange
	trustCA               []string
	upstreams             []UpstreamConfig
	dialTimeout           time.Duration
	responseHeaderTimeout time.Duration
}

type limitsSettings struct {
	connections int
	perSource   int
	requests    int
	tunnels     int
	tunnelAge   time.Duration
	headerSize  int // 0: that of the server
	urlSize     int
	minRate     int64 // octets a second; 0 for any
	bodyTimeout time.Duration
}

// Defaults of DESIGN §7.
const (
	defaultHotSize               = 256 << 20
	defaultFetchTimeout          = 20 * time.Second
	minRedirects                 = 5
	minRobotsSize                = 500 << 10
	defaultParallel              = 256
	defaultRate                  = "5/s"
	defaultBurst                 = 5
	defaultConcurrency           = 8
	defaultWait                  = 10 * time.Second
	defaultQueue                 = 1000
	defaultBackoffMin            = time.Minute
	defaultBackoffMax            = 24 * time.Hour
	maxGateways                  = 1000
	maxGatewayName               = 64
	defaultDialTimeout           = 10 * time.Second
	defaultResponseHeaderTimeout = time.Minute
	defaultDescriptors           = 16384 // where the system does not tell
	defaultPerAgent              = 16384
	defaultTunnelAge             = 24 * time.Hour
	defaultURLSize               = 16 << 10
	minRequestSize               = 1 << 10 // of header and URL
	maxRequestSize               = 16 << 20
	defaultMinRate               = "100B/s"
	defaultBodyTimeout           = 10 * time.Minute
)

// settings checks the configuration and fills in the defaults.
func (a *App) settings() (settings, error) {
	s := settings{userAgent: cmp.Or(a.UserAgent, version.UserAgent()), store: StoreConfig{Kind: "file"}, indexHTML: a.IndexHTML}
	if strings.ContainsFunc(a.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) {
		return settings{}, fmt.Errorf("user_agent %q: has characters that a header cannot carry", a.UserAgent)
	}
	if err := s.setNames(a); err != nil {
		return settings{}, err
	}
	var err error
	if s.redact, err = redact.New(a.Redact); err != nil {
		return settings{}, fmt.Errorf("redact: %w", err)
	}
	if a.Store != nil {
		if err := a.Store.check(); err != nil {
			return settings{}, fmt.Errorf("store: %w", err)
		}
		s.store = *a.Store
	}
	if s.store.Kind == "file" && s.store.Path == "" {
		s.store.Path = filepath.Join(caddy.AppDataDir(), "crawlgate", "robots.db")
	}
	var cache CacheConfig
	if a.Cache != nil {
		cache = *a.Cache
	}
	var fetching FetchConfig
	if a.Fetch != nil {
		fetching = *a.Fetch
	}
	s.maxSize = cmp.Or(cache.MaxSize, defaultHotSize)
	if s.policy, err = fetchPolicy(cache, fetching); err != nil {
		return settings{}, err
	}
	if s.fetch, err = fetching.settings(); err != nil {
		return settings{}, fmt.Errorf("fetch: %w", err)
	}
	if s.pace, err = a.Pace.settings(); err != nil {
		return settings{}, fmt.Errorf("pace: %w", err)
	}
	if s.egress, err = a.Egress.settings(); err != nil {
		return settings{}, fmt.Errorf("egress: %w", err)
	}
	if s.limits, err = a.Limits.settings(); err != nil {
		return settings{}, fmt.Errorf("limits: %w", err)
	}
	return s, nil
}

// setNames sets what the gateway calls itself, and where it explains itself.
func (s *settings) setNames(a *App) error {
	s.gateway, s.help = a.Gateway, enforce.HelpAt(version.Read().Ref())
	if a.Gateway == "" {
		if name, err := os.Hostname(); err == nil && isGatewayName(name) {
			s.gateway = name
		}
	} else if !isGatewayName(a.Gateway) {
		return fmt.Errorf("gateway %q: want up to %d visible ASCII octets", a.Gateway, maxGatewayName)
	}
	if a.Help == "" {
		return nil
	}
	u, err := url.Parse(a.Help)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || !isVisible(a.Help) {
		return errors.New("help: want a URL such as https://wiki.example.com/robots/, without credentials")
	}
	s.help = enforce.Help{Base: a.Help}
	return nil
}

func isGatewayName(name string) bool { return len(name) <= maxGatewayName && isVisible(name) }

// isVisible reports whether s has visible ASCII octets only.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// span is cmp.Or for the durations of a configuration.
func span(v caddy.Duration, def time.Duration) time.Duration { return cmp.Or(time.Duration(v), def) }

func (c *StoreConfig) check() error {
	if err := oneOf("kind", c.Kind, "file", "redis", "none"); err != nil {
		return err
	}
	if c.Kind == "redis" {
		return checkRedisURL(c.URL)
	}
	return nil
}

var modes = map[string]fetch.Mode{
	"": fetch.ModeSpec, "spec": fetch.ModeSpec, "stale": fetch.ModeStale, "google": fetch.ModeGoogle, "strict": fetch.ModeStrict,
}

func fetchPolicy(c CacheConfig, f FetchConfig) (fetch.Policy, error) {
	d := fetch.DefaultPolicy()
	mode, ok := modes[f.Unreachable]
	if !ok {
		return fetch.Policy{}, oneOf("fetch: unreachable", f.Unreachable, "spec", "stale", "google", "strict")
	}
	if err := oneOf("fetch: forbidden", f.Forbidden, "allow", "disallow"); err != nil {
		return fetch.Policy{}, err
	}
	p := fetch.Policy{
		Mode:              mode,
		UnreachableFor:    span(f.UnreachableFor, d.UnreachableFor),
		TTL:               span(c.TTL, d.TTL),
		MinTTL:            span(c.MinTTL, min(d.MinTTL, span(c.TTL, d.TTL))),
		RetryMin:          span(f.RetryFirst, d.RetryMin),
		RetryMax:          span(f.RetryLongest, max(d.RetryMax, span(f.RetryFirst, 0))),
		ForbiddenDisallow: f.Forbidden == "disallow",
	}
	switch {
	case p.TTL > d.TTL:
		return fetch.Policy{}, fmt.Errorf("cache: ttl %s is above %s, the longest that RFC 9309 section 2.4 permits", p.TTL, d.TTL)
	case p.MinTTL > p.TTL:
		return fetch.Policy{}, fmt.Errorf("cache: min_ttl %s is longer than ttl %s", p.MinTTL, p.TTL)
	case p.RetryMin > p.RetryMax:
		return fetch.Policy{}, fmt.Errorf("fetch: retry: %s is longer than %s", p.RetryMin, p.RetryMax)
	}
	return p, nil
}

func (f FetchConfig) settings() (fetchSettings, error) {
	s := fetchSettings{
		timeout:      span(f.Timeout, defaultFetchTimeout),
		maxRedirects: minRedirects,
		maxSize:      int(cmp.Or(f.MaxSize, minRobotsSize)),
		soft404:      f.SoftNotFound != "off",
		parallel:     cmp.Or(f.Parallel, defaultParallel),
	}
	if f.MaxRedirects != nil {
		s.maxRedirects = *f.MaxRedirects
	}
	switch {
	case s.maxSize < minRobotsSize:
		return fetchSettings{}, errors.New("max_size is below 500 KiB, the least that RFC 9309 section 2.5 permits")
	case s.maxSize > 64<<20:
		return fetchSettings{}, errors.New("max_size is above 64 MiB")
	case s.maxRedirects < minRedirects:
		return fetchSettings{}, fmt.Errorf("max_redirects is below %d, which a crawler should follow (RFC 9309 section 2.3.1.2)", minRedirects)
	case s.parallel < 0:
		return fetchSettings{}, errors.New("parallel is negative")
	case s.timeout > 5*time.Minute:
		return fetchSettings{}, fmt.Errorf("timeout %s is above 5m: a crawler waits for as long", s.timeout)
	}
	return s, oneOf("soft_404", f.SoftNotFound, "detect", "off")
}

func checkPer(list []string) error {
	for i, s := range list {
		if _, err := pace.ParseScope(s); err != nil {
			return err
		}
		if slices.Contains(list[:i], s) {
			return fmt.Errorf("%q is given twice", s)
		}
	}
	return nil
}

func (p *PaceConfig) settings() (paceSettings, error) {
	if p == nil {
		p = new(PaceConfig)
	}
	rate, err := pace.ParseRate(cmp.Or(p.Rate, defaultRate))
	if err != nil {
		return paceSettings{}, err
	}
	s := paceSettings{
		Politeness: enforce.Politeness{
			Rate:        rate,
			Burst:       cmp.Or(p.Burst, defaultBurst),
			Concurrency: cmp.Or(p.Concurrency, defaultConcurrency),
			CrawlDelay:  pace.CrawlDelay{Max: enforce.DefaultMaxCrawlDelay},
			Wait:        defaultWait,
			Per:         []pace.Scope{pace.PerHost},
		},
		queue:      cmp.Or(p.Queue, defaultQueue),
		backoff:    true,
		backoffMin: defaultBackoffMin,
		backoffMax: defaultBackoffMax,
		shared:     p.Shared,
		gateways:   cmp.Or(p.Gateways, 1),
	}
	if s.Burst < 0 || s.Concurrency < 0 || s.queue < 0 {
		return paceSettings{}, errors.New("burst, concurrency and queue cannot be negative")
	}
	if p.Wait != nil {
		s.Wait = time.Duration(*p.Wait)
	}
	if err := s.setCrawlDelay(p.CrawlDelay); err != nil {
		return paceSettings{}, err
	}
	if err := s.setScopes(p.Per); err != nil {
		return paceSettings{}, err
	}
	if s.gateways < 1 || s.gateways > maxGateways {
		return paceSettings{}, fmt.Errorf("gateways: %d is not from 1 to %d", s.gateways, maxGateways)
	}
	if p.Shared != "" {
		if err := checkRedisURL(p.Shared); err != nil {
			return paceSettings{}, fmt.Errorf("shared: %w", err)
		}
	}
	return s, s.setBackoff(p.Backoff)
}

func (s *paceSettings) setCrawlDelay(c *CrawlDelayConfig) error {
	if c == nil {
		return nil
	}
	above, err := pace.ParseAbove(cmp.Or(c.Above, "clamp"))
	s.CrawlDelay = pace.CrawlDelay{Min: time.Duration(c.Min), Max: time.Duration(c.Max), Above: above}
	if err == nil && c.Min > c.Max {
		err = fmt.Errorf("crawl_delay: %s is longer than %s", time.Duration(c.Min), time.Duration(c.Max))
	}
	return err
}

func (s *paceSettings) setScopes(per []string) error {
	if len(per) == 0 {
		return nil
	}
	s.Per = nil
	for _, name := range per {
		scope, err := pace.ParseScope(name)
		if err != nil {
			return err
		}
		s.Per = append(s.Per, scope)
	}
	return checkPer(per)
}

func (s *paceSettings) setBackoff(b *BackoffConfig) error {
	if b == nil {
		return nil
	}
	s.backoff = !b.Off
	s.backoffMin, s.backoffMax = span(b.First, defaultBackoffMin), span(b.Longest, defaultBackoffMax)
	if s.backoffMin > s.backoffMax {
		return fmt.Errorf("backoff: %s is longer than %s", s.backoffMin, s.backoffMax)
	}
	return nil
}

func (e *EgressConfig) settings() (egressSettings, error) {
	if e == nil {
		e = new(EgressConfig)
	}
	s := egressSettings{
		ports:                 egress.DefaultPorts(),
		trustCA:               e.TrustCA,
		upstreams:             e.Upstreams,
		dialTimeout:           span(e.DialTimeout, defaultDialTimeout),
		responseHeaderTimeout: span(e.ResponseHeaderTimeout, defaultResponseHeaderTimeout),
	}
	var err error
	if s.allowPrivate, err = parsePrefixes("allow_private", e.AllowPrivate); err != nil {
		return egressSettings{}, err
	}
	if len(e.Ports) > 0 {
		s.ports = nil
	}
	for _, text := range e.Ports {
		r, err := egress.ParsePortRange(text)
		if err != nil {
			return egressSettings{}, fmt.Errorf("ports: %w", err)
		}
		s.ports = append(s.ports, r)
	}
	return s, nil
}

func (l *LimitsConfig) settings() (s limitsSettings, err error) {
	if l == nil {
		l = new(LimitsConfig)
	}
	s.connections = cmp.Or(l.Connections, cmp.Or(descriptorLimit(), defaultDescriptors)*3/4)
	s.perSource = cmp.Or(l.ConnectionsPerSource, max(s.connections*3/4, 1))
	s.requests = cmp.Or(l.RequestsPerAgent, defaultPerAgent)
	s.tunnels = cmp.Or(l.TunnelsPerAgent, defaultPerAgent)
	s.tunnelAge = span(l.TunnelAge, defaultTunnelAge)
	s.headerSize, s.urlSize = int(l.HeaderSize), int(cmp.Or(l.URLSize, defaultURLSize))
	if min(s.connections, s.perSource, s.requests, s.tunnels) < 0 {
		return s, errors.New("a number is negative")
	}
	if l.Connections > 0 && l.ConnectionsPerSource > l.Connections {
		return s, fmt.Errorf("connections_per_source %d is more than connections %d", l.ConnectionsPerSource, l.Connections)
	}
	if l.HeaderSize > 0 && l.URLSize > l.HeaderSize {
		return s, fmt.Errorf("url_size of %d octets is more than header_size of %d", l.URLSize, l.HeaderSize)
	}
	if err := errors.Join(checkRequestSize(int64(cmp.Or(s.headerSize, defaultURLSize))), checkRequestSize(int64(s.urlSize))); err != nil {
		return s, err
	}
	s.bodyTimeout = span(l.BodyTimeout, defaultBodyTimeout)
	s.minRate, err = parseMinRate(cmp.Or(l.MinRate, defaultMinRate))
	return s, err
}

// checkRequestSize checks a bound of a header or a URL.
func checkRequestSize(n int64) error {
	if n < minRequestSize || n > maxRequestSize {
		return fmt.Errorf("%d octets are not from 1KiB to 16MiB", n)
	}
	return nil
}

// maxMinRate is far above what any crawler sends.
const maxMinRate = 1 << 30

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
