package crawlgate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/version"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App is the engine that all sites share: the cache of robots.txt rulesets with its store and
// fetcher, the clocks of the hosts, and the transport by which everything leaves. It needs no
// configuration: a site with the handler http.handlers.robots brings it up with its defaults.
//
// A reload keeps state that is costly to lose: the rulesets as long as the configuration names the
// same store, the clocks always.
type App struct {
	// UserAgent is sent with every fetch of robots.txt, no matter which crawler asked for it. It
	// should name a page or an address by which a site can reach the operator. Default:
	// crawlgate/VERSION (+https://github.com/crawlgate/crawlgate), with a warning at each start.
	UserAgent string `json:"user_agent,omitempty"`
	// Gateway names this gateway in logs: up to 64 visible ASCII characters. Default: the name of the
	// host.
	Gateway string `json:"gateway,omitempty"`
	// Help is what links in refusals begin with: a URL, which the reason follows, such as tls-alert.
	// Default: the project's pages on reasons, of the version that runs.
	Help   string         `json:"help,omitempty"`
	Redis  *RedisConfig   `json:"redis,omitempty"`
	Store  *engine.Store  `json:"store,omitempty"`
	Cache  *CacheConfig   `json:"cache,omitempty"`
	Fetch  *FetchConfig   `json:"fetch,omitempty"`
	Pace   *PaceConfig    `json:"pace,omitempty"`
	Egress *EgressConfig  `json:"egress,omitempty"`
	Limits *engine.Limits `json:"limits,omitempty"`
	Fleet  *engine.Fleet  `json:"fleet,omitempty"`
	// Signals says where the gateway reads what sites say of the use of their content.
	Signals *enforce.Signals `json:"signals,omitempty"`
	// IndexHTML lets "Allow: /x/index.html" allow /x/ too, as Google's parser does and RFC 9309 does
	// not. Default off.
	IndexHTML bool `json:"index_html,omitempty"`
	// Redact lists the fields of proxied requests and their answers whose values are not logged; "off"
	// alone stands for none. Default: those by which common APIs take and give keys. Authorization,
	// Proxy-Authorization, Cookie and Set-Cookie are left to Caddy, which does not log them without
	// log_credentials.
	Redact []string `json:"redact,omitempty"`
	// AllowFor is the longest time of an exception that is given at run time; 0 permits none. Default
	// 720 h.
	AllowFor *caddy.Duration `json:"allow_for,omitempty"`
	// Unlogged says what happens to requests while an access log takes no lines: "refuse" (default) or
	// "serve".
	Unlogged string `json:"unlogged,omitempty"`

	engine *engine.Engine
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "robots", New: func() caddy.Module { return new(App) }}
}

// Provision checks the configuration and makes the engine.
func (a *App) Provision(ctx caddy.Context) error {
	config, err := a.settings()
	if err != nil {
		return err
	}
	named := *a
	named.Gateway = "" // gateways of one configuration have names of their own
	if config.Source, err = json.Marshal(named); err != nil {
		return err
	}
	if err := a.resolve(&config); err != nil {
		return err
	}
	if err := config.Store.Load(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	a.engine, err = engine.New(ctx, config)
	return err
}

// Engine returns the engine of the configuration, for the modules that are provisioned beside the
// app.
func (a *App) Engine() *engine.Engine { return a.engine }

// Start makes this configuration the current one.
func (a *App) Start() error { return a.engine.Start() }

// Stop gives way to the configuration before or after this one; Cleanup does the work.
func (a *App) Stop() error { return nil }

// Cleanup gives back what the engine holds.
func (a *App) Cleanup() error {
	if a.engine == nil {
		return nil
	}
	return a.engine.Close()
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

// The types below are the rest of the JSON form of the global option, which docs/caddyfile.md has
// as lines. A field that is left out has the default that its comment names.

// CacheConfig bounds the rulesets held in memory and how long one is used.
type CacheConfig struct {
	// MaxSize is the size of the hot tier in bytes. Default 256 MiB.
	MaxSize int64 `json:"max_size,omitempty"`
	// TTL is the longest time a ruleset is used without a new fetch. Default and most 24 h (RFC 9309
	// §2.4).
	TTL caddy.Duration `json:"ttl,omitempty"`
}

// FetchConfig says how robots.txt is fetched and what a failure means.
type FetchConfig struct {
	// Timeout is the budget of one retrieval with all its redirects. Default 20 s.
	Timeout caddy.Duration `json:"timeout,omitempty"`
	// RetryFirst and RetryLongest bound the pauses between tries while an origin is unreachable.
	// Default 1 min and 1 h.
	RetryFirst   caddy.Duration `json:"retry_first,omitempty"`
	RetryLongest caddy.Duration `json:"retry_longest,omitempty"`
	// Unreachable is "spec" (default), "stale", "google" or "strict".
	Unreachable string `json:"unreachable,omitempty"`
	// UnreachableFor is how long an unbroken run of failures disallows everything. Default 720 h (RFC
	// 9309 §2.3.1.4).
	UnreachableFor caddy.Duration `json:"unreachable_for,omitempty"`
	// Forbidden is what 401 and 403 for robots.txt mean: "allow" (default, RFC 9309 §2.3.1.3) or
	// "disallow".
	Forbidden string `json:"forbidden,omitempty"`
	// SoftNotFound is "detect" (default) or "off": whether a proven mis-set 5xx counts as 404 (seed
	// 000).
	SoftNotFound string `json:"soft_404,omitempty"`
	// Parallel is how many fetches run at once. Default 256.
	Parallel int `json:"parallel,omitempty"`
}

// PaceConfig is the politeness of the company towards one host.
type PaceConfig struct {
	// Rate is the most requests per host, such as "5/s", "30/m", "1/10s" or "off". Default "5/s".
	Rate string `json:"rate,omitempty"`
	// Burst is how many requests may follow each other at once after a pause. Default 5. A Crawl-delay
	// allows no burst.
	Burst int `json:"burst,omitempty"`
	// Concurrency is how many responses of one host may be open at once. Default 8.
	Concurrency int `json:"concurrency,omitempty"`
	// CrawlDelay clamps the site's Crawl-delay.
	CrawlDelay *CrawlDelayConfig `json:"crawl_delay,omitempty"`
	// Wait is how long a request is held before it is answered with 429. Default 25 s.
	Wait *caddy.Duration `json:"wait,omitempty"`
	// Queue is how many requests may wait for one host. Beyond it an agent may have its share, so that
	// fewer than twice as many wait. Default 1000.
	Queue int `json:"queue,omitempty"`
	// Per lists what shares a clock: "host" (default), "site" (registrable domain), "address". The
	// strictest wins.
	Per []string `json:"per,omitempty"`
	// Backoff is what a 429, 430 or 503 of the origin does.
	Backoff *BackoffConfig `json:"backoff,omitempty"`
	// Shared is the URL of a Redis that keeps the clocks of several gateways. Placeholders are
	// replaced.
	Shared string `json:"shared,omitempty"`
}

// RedisConfig is the Redis where gateways share their records, clocks and orders. Store,
// Pace.Shared and Fleet may name another one for their part.
type RedisConfig struct {
	// URL is redis://, rediss:// or unix://. Placeholders are replaced. Required.
	URL string `json:"url"`
	// Prefix tells several fleets in one database apart. Default "crawlgate".
	Prefix string `json:"prefix,omitempty"`
	// Expect is how many gateways there should be at least: commands say if fewer answer, and while
	// Redis is away no gateway takes more than this part of a rate. Default: not known.
	Expect int `json:"expect,omitempty"`
}

// CrawlDelayConfig says which Crawl-delay of a site is kept as it is.
type CrawlDelayConfig struct {
	// Min is the least delay between two requests of a site that asks for a delay. Default 0.
	Min caddy.Duration `json:"min,omitempty"`
	// Max is the most that is honoured as written. Default 30 s.
	Max caddy.Duration `json:"max,omitempty"`
	// Above says what a longer delay does: "clamp" to Max (default), "refuse" the request or "honor"
	// the delay.
	Above string `json:"above,omitempty"`
}

// BackoffConfig is the pause after an origin's 429, 430 or 503 without Retry-After, doubling from
// First to Longest.
type BackoffConfig struct {
	Off     bool           `json:"off,omitempty"`
	First   caddy.Duration `json:"first,omitempty"`   // default 60 s
	Longest caddy.Duration `json:"longest,omitempty"` // default 24 h
}

// EgressConfig says how bytes leave.
type EgressConfig struct {
	// AllowPrivate lists ranges that may be reached although they are not public. An address of a
	// cloud's metadata service, or of another site of this process, is opened by a range of just this
	// address only. Default none.
	AllowPrivate []string `json:"allow_private,omitempty"`
	// Ports lists the ports, and ranges as "1024-65535", that may be reached. Default 80, 443 and
	// 1024-65535.
	Ports []string `json:"ports,omitempty"`
	// TrustCA lists PEM files whose certificates are trusted besides the system's roots.
	TrustCA []string `json:"trust_ca,omitempty"`
	// Upstreams are the proxies that requests leave through; the first whose hosts match is taken.
	Upstreams []UpstreamConfig `json:"upstreams,omitempty"`
	// DialTimeout bounds name resolution and connect. Default 10 s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`
	// ResponseHeaderTimeout bounds the wait for the first bytes of a crawler's answer. Default 60 s.
	ResponseHeaderTimeout caddy.Duration `json:"response_header_timeout,omitempty"`
}

// UpstreamConfig is one proxy (http, https or socks5) and the hosts that go through it; none means
// all.
type UpstreamConfig struct {
	URL   string   `json:"url"`
	Hosts []string `json:"hosts,omitempty"`
}

func checkStore(c *engine.Store) error {
	if err := enforce.OneOf("kind", c.Kind, engine.StoreKinds()...); err != nil {
		return err
	}
	switch {
	case c.Kind == "none" && (c.Retain != 0 || c.RetainMax != 0):
		return errors.New("none keeps no text beyond the process: retain and retain_max are for file, retain for redis")
	case c.Kind == "redis" && c.RetainMax != 0:
		return errors.New("redis bounds its memory itself: set its maxmemory in place of retain_max")
	case c.Retain < 0 || c.Retain > caddy.Duration(maxRetain):
		return errors.New("retain is negative, or longer than 100 years")
	case c.RetainMax != 0 && c.RetainMax < minRetainMax:
		return errors.New("retain_max is below 16 MiB: texts would go as they come")
	case c.Kind == "redis" && c.URL == "":
		return errors.New("redis needs a url")
	}
	return nil
}

// setRedis sets what store, pace and fleet begin with.
func (a *App) setRedis(c *engine.Config) error {
	r := cmp.Or(a.Redis, new(RedisConfig))
	c.SharedClocks, c.Prefix = r.URL, cmp.Or(r.Prefix, "crawlgate")
	switch {
	case a.Redis == nil:
		return nil
	case r.URL == "":
		return errors.New("redis needs a url")
	case r.Expect < 0 || r.Expect > maxGateways:
		return fmt.Errorf("redis: expect: %d is not from 1 to %d", r.Expect, maxGateways)
	case !isGatewayName(c.Prefix) || strings.ContainsAny(c.Prefix, "{}"):
		return fmt.Errorf("redis: prefix %q: want up to %d visible ASCII characters without braces", c.Prefix, maxGatewayName)
	}
	return link.CheckURL(r.URL)
}

// setFleet runs after the settings of store and pace. Gateways that share records or clocks by a
// Redis share orders by it too: a stop must not end one of them only.
func (a *App) setFleet(c *engine.Config) error {
	f, r := a.Fleet, cmp.Or(a.Redis, new(RedisConfig))
	if f == nil {
		if c.SharedClocks == "" && c.Store.URL == "" {
			return nil
		}
		f = new(engine.Fleet)
	}
	c.Fleet = *f
	c.Fleet.URL, c.Fleet.Expect = cmp.Or(f.URL, r.URL, c.SharedClocks, c.Store.URL), cmp.Or(f.Expect, r.Expect)
	c.Fleet.Self.Name, c.Fleet.Self.Version = c.Name, version.Read()
	switch {
	case c.Fleet.URL == "":
		return errors.New("redis needs a url: neither `pace shared` nor `store redis` has one")
	case f.Expect < 0 || f.Expect > maxGateways:
		return fmt.Errorf("expect: %d is not from 1 to %d", f.Expect, maxGateways)
	case c.Name == "":
		return errors.New("each gateway needs a name of its own: set gateway")
	}
	return nil
}
