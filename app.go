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

// App is the engine that all sites share: the cache of robots.txt with its store and fetcher, the
// clocks of the hosts, and the transport of all outgoing requests. It needs no configuration: a
// site with the handler http.handlers.robots starts it with its defaults.
//
// A reload keeps the clocks, and the rulesets if the new configuration names the same store.
type App struct {
	// UserAgent is the User-Agent of fetches of robots.txt, whichever crawler asked: printable
	// ASCII. Name a page or an address where sites can reach you: without the option, a warning at
	// each start says that they cannot. Default: `crawlgate/VERSION
	// (+https://github.com/crawlgate/crawlgate)`.
	UserAgent string `json:"user_agent,omitempty"`
	// Gateway is the name of this gateway in the log and in the fleet: up to 64 visible ASCII
	// characters. Default: the name of the host.
	Gateway string `json:"gateway,omitempty"`
	// Help is the beginning of the links in refusals: an http or https URL without credentials. The
	// reason follows it, with hyphens, such as `tls-alert`. Default: this gateway's pages on
	// reasons, and for the type of a problem the project's, of the version that runs.
	Help string `json:"help,omitempty"`
	// Redis is a Redis or Valkey in which several gateways share records of robots.txt, clocks and
	// orders. [App.Store], `pace.shared` and [App.Fleet] may name another one for their part.
	// Default: none.
	Redis *RedisConfig `json:"redis,omitempty"`
	// Store says where the records of origins are kept. Default: a file, or `redis` if [App.Redis]
	// is given.
	Store *engine.Store `json:"store,omitempty"`
	// Cache bounds the rulesets in memory, and how long one is used.
	Cache *CacheConfig `json:"cache,omitempty"`
	// Fetch says how robots.txt is fetched, and what a failure means.
	Fetch *FetchConfig `json:"fetch,omitempty"`
	// Pace says how fast the gateway asks one host, for all crawlers together.
	Pace *PaceConfig `json:"pace,omitempty"`
	// Egress says where requests may go, and how.
	Egress *EgressConfig `json:"egress,omitempty"`
	// Limits bound what clients may take of the gateway.
	Limits *engine.Limits `json:"limits,omitempty"`
	// Fleet says in which Redis the gateways of a fleet pass orders on. Default: on, with the URL
	// of [App.Redis], of `pace.shared` or of the store, in this order, if one of them is given.
	Fleet *engine.Fleet `json:"fleet,omitempty"`
	// Signals says where the gateway reads preferences besides robots.txt and the fields of answers.
	Signals *enforce.Signals `json:"signals,omitempty"`
	// IndexHTML makes `Allow: /x/index.html` allow `/x/` too, as for Google's crawlers but not in
	// RFC 9309. Default: false.
	IndexHTML bool `json:"index_html,omitempty"`
	// Redact lists the fields of proxied requests and their answers whose values are not logged.
	// `off` alone logs all of them. Caddy itself withholds Authorization, Proxy-Authorization,
	// Cookie and Set-Cookie unless `log_credentials` is on. Default: the fields in which common
	// APIs take and return keys.
	Redact []string `json:"redact,omitempty"`
	// AllowFor is the longest time that an exception given at run time may last, from when it was
	// given. A longer one is refused. An exception that another gateway of the fleet gave ends here
	// after this time. With 0, none can be given here, and none of another gateway counts. Default:
	// 720h.
	AllowFor *caddy.Duration `json:"allow_for,omitempty"`
	// Unlogged says what happens to requests while an access log takes no lines: `refuse` answers
	// 503, `serve` lets them pass without a line and counts them as lost. Default: `refuse`.
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
	named.Gateway = "" // each gateway of one configuration has its own name
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

// Engine returns the engine of the configuration, for other modules.
func (a *App) Engine() *engine.Engine { return a.engine }

// Start makes this configuration the current one.
func (a *App) Start() error { return a.engine.Start() }

// Stop does nothing; Cleanup does the work.
func (a *App) Stop() error { return nil }

// Cleanup releases everything that the engine holds.
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

// The types below are the rest of the JSON form of the global option. docs/json.md is made from
// their comments.

// CacheConfig bounds the rulesets in memory, and how long one is used.
type CacheConfig struct {
	// MaxSize is the memory for rulesets, in bytes: at least 1 MiB. Default: 256 MiB.
	MaxSize int64 `json:"max_size,omitempty"`
	// TTL is the longest time that a ruleset is used without a new fetch, at most 24h (RFC 9309
	// section 2.4). An origin's Cache-Control may ask for less, down to 5 minutes or to a shorter
	// TTL. Default: 24h.
	TTL caddy.Duration `json:"ttl,omitempty"`
}

// FetchConfig says how robots.txt is fetched and what a failure means.
type FetchConfig struct {
	// Timeout is the time for one fetch with its redirects and its second try, at most 5m. A first
	// request waits no longer. Within it, only `egress.dial_timeout` limits a phase. Default: 20s.
	Timeout caddy.Duration `json:"timeout,omitempty"`
	// RetryFirst is the pause after the first failure of an origin. The pause doubles with each
	// further failure. Default: 1m.
	RetryFirst caddy.Duration `json:"retry_first,omitempty"`
	// RetryLongest is the longest pause between two tries at an unreachable origin. Default: 1h.
	RetryLongest caddy.Duration `json:"retry_longest,omitempty"`
	// Unreachable says what counts while an origin is unreachable. `spec`: nothing may be fetched
	// for [FetchConfig.UnreachableFor], then the last good copy decides, or everything is allowed.
	// `stale`: the last good copy decides at once; without one as `spec`. `google`: nothing may be
	// fetched for 12 hours, then the last good copy decides; without one as `spec`. `strict`:
	// nothing may be fetched without end. Default: `spec`.
	Unreachable string `json:"unreachable,omitempty"`
	// UnreachableFor is the time from the first failure of an unbroken run (RFC 9309 section
	// 2.3.1.4). Default: 720h.
	UnreachableFor caddy.Duration `json:"unreachable_for,omitempty"`
	// Forbidden says what 401 and 403 for robots.txt mean: `allow` (RFC 9309 section 2.3.1.3) or
	// `disallow`. Default: `allow`.
	Forbidden string `json:"forbidden,omitempty"`
	// SoftNotFound says whether a 500 or 501 that is proven to be a misconfigured 404 counts as
	// one, at sites without known rules: `detect` or `off`. Default: `detect`.
	SoftNotFound string `json:"soft_404,omitempty"`
	// Parallel is how many fetches may read a site's answer at once, up to 100,000 in a Caddyfile.
	// Up to 18 times as many may be in progress, because most wait for an answer, but never more
	// than a quarter of the file descriptors of the process. New sites have three quarters of each
	// number, refreshes and retries an eighth each. At most 3 times this many begin per second.
	// Default: 256.
	Parallel int `json:"parallel,omitempty"`
}

// PaceConfig says how fast the gateway asks one host, for all crawlers together.
type PaceConfig struct {
	// Rate is the most requests to one host, such as `5/s`, `30/m` or `1/10s`. With `off`, only
	// Crawl-delay and back-off apply. Default: `5/s`.
	Rate string `json:"rate,omitempty"`
	// Burst is how many requests may follow each other at once after a pause. A Crawl-delay allows
	// none. Default: 5.
	Burst int `json:"burst,omitempty"`
	// Concurrency is how many responses of one host may be open at once. If there are several
	// agents, each of them gets at most one less, so that there is a place for another. Default: 8.
	Concurrency int `json:"concurrency,omitempty"`
	// CrawlDelay bounds the Crawl-delay of sites.
	CrawlDelay *CrawlDelayConfig `json:"crawl_delay,omitempty"`
	// Wait is how long a request is held for its turn before it gets 429 with the exact
	// Retry-After. 0 holds none. Default: 25s.
	Wait *caddy.Duration `json:"wait,omitempty"`
	// Queue is how many requests may wait for one host. When it is full, each agent still gets its
	// share; the total stays below twice this number. Default: 1000.
	Queue int `json:"queue,omitempty"`
	// Per lists what shares a clock: `host`, `site` (the registrable domain) or `address`. With
	// several, the strictest clock counts. Default: `host`.
	Per []string `json:"per,omitempty"`
	// Backoff is the pause after a 429, 430 or 503 of a host.
	Backoff *BackoffConfig `json:"backoff,omitempty"`
	// Shared is the URL of a Redis in which several gateways share their clocks. Placeholders are
	// replaced. Default: the URL of `redis`.
	Shared string `json:"shared,omitempty"`
}

// RedisConfig is the Redis or Valkey in which gateways share records, clocks and orders.
type RedisConfig struct {
	// URL is `redis://`, `rediss://` or `unix://`. Placeholders such as `{env.REDIS_URL}` are
	// replaced. Required.
	URL string `json:"url"`
	// Prefix separates the fleets in one database. It is part of the names of all keys and
	// channels: up to 64 visible ASCII characters without braces. Default: `crawlgate`.
	Prefix string `json:"prefix,omitempty"`
	// Expect is the least number of gateways that there should be, up to 1000. If fewer answer an
	// order, its command says so and ends
	// with 1. While the Redis of the clocks is away, a gateway assumes that there are this many,
	// unless it has met more. Default: not known.
	Expect int `json:"expect,omitempty"`
}

// CrawlDelayConfig bounds the Crawl-delay of sites.
type CrawlDelayConfig struct {
	// Min is the shortest pause at a site that asks for one. Default: 0s.
	Min caddy.Duration `json:"min,omitempty"`
	// Max is the longest Crawl-delay that is kept as the site wrote it. Without `crawl_delay`, it
	// is 30s. Default: 0s.
	Max caddy.Duration `json:"max,omitempty"`
	// Above says what happens if a site asks for a longer one: `clamp` keeps
	// [CrawlDelayConfig.Max], `refuse` refuses the request (reason `crawl_delay`), `honor` keeps
	// the delay of the site. Default: `clamp`.
	Above string `json:"above,omitempty"`
}

// BackoffConfig is the pause after a 429, 430 or 503 of a host without Retry-After. It doubles with
// each such answer.
type BackoffConfig struct {
	// Off makes no pause unless the answer has Retry-After. Default: false.
	Off bool `json:"off,omitempty"`
	// First is the first pause. Default: 60s.
	First caddy.Duration `json:"first,omitempty"`
	// Longest is the longest pause. Default: 24h.
	Longest caddy.Duration `json:"longest,omitempty"`
}

// EgressConfig says where requests may go, and how.
type EgressConfig struct {
	// AllowPrivate lists addresses and ranges that may be reached although they are not public. An
	// address of a cloud's metadata service, or of another site of this process, has to be named
	// alone, such as `127.0.0.1`. Gateways and the admin API of this process are never reached.
	// Default: none.
	AllowPrivate []string `json:"allow_private,omitempty"`
	// Ports lists the ports, and ranges such as `1024-65535`, that may be reached. For `ftp`, it
	// has to have port 21 too. Default: 80, 443 and 1024-65535.
	Ports []string `json:"ports,omitempty"`
	// TrustCA lists PEM files with certificates that are trusted for origins besides the system's.
	// Default: none.
	TrustCA []string `json:"trust_ca,omitempty"`
	// Upstreams are proxies that requests leave through, fetches of robots.txt and `ftp` included.
	// The first whose hosts match is used. If the proxy itself answers, that is no robots.txt:
	// cause `upstream`. Default: none.
	Upstreams []UpstreamConfig `json:"upstreams,omitempty"`
	// DialTimeout is the time to resolve a name and connect. The TLS handshake has as long again.
	// Default: 10s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`
	// ResponseHeaderTimeout is the time to the first bytes of an answer to a crawler. A fetch of
	// robots.txt has `fetch.timeout`. Default: 60s.
	ResponseHeaderTimeout caddy.Duration `json:"response_header_timeout,omitempty"`
}

// UpstreamConfig is one proxy, and the hosts that are reached through it.
type UpstreamConfig struct {
	// URL is the proxy: `http`, `https` or `socks5`, with credentials if it needs them.
	// Placeholders are replaced. Required.
	URL string `json:"url"`
	// Hosts are patterns without ports of the hosts that are reached through it. Default: all.
	Hosts []string `json:"hosts,omitempty"`
}

func checkStore(c *engine.Store) error {
	if err := enforce.OneOf("kind", c.Kind, engine.StoreKinds()...); err != nil {
		return err
	}
	switch {
	case c.Kind == "none" && (c.Retain != 0 || c.RetainMax != 0):
		return errors.New("store none keeps texts in memory only: retain and retain_max are for file, retain for redis")
	case c.Kind == "redis" && c.RetainMax != 0:
		return errors.New("redis bounds its memory itself: set its maxmemory instead of retain_max")
	case c.Retain > caddy.Duration(maxRetain):
		return errors.New("retain is longer than 100 years")
	case c.RetainMax != 0 && c.RetainMax < minRetainMax:
		return errors.New("retain_max is below 16 MiB: texts would be dropped at once")
	case c.Kind == "redis" && c.URL == "":
		return errors.New("redis needs a url")
	}
	return nil
}

// setRedis sets the defaults of store, pace and fleet from the option redis.
func (a *App) setRedis(c *engine.Config) error {
	r := cmp.Or(a.Redis, new(RedisConfig))
	c.SharedClocks, c.Prefix = r.URL, cmp.Or(r.Prefix, "crawlgate")
	switch {
	case a.Redis == nil:
		return nil
	case r.URL == "":
		return errors.New("redis needs a url")
	case r.Expect > maxGateways:
		return fmt.Errorf("redis: expect: %d is not from 1 to %d", r.Expect, maxGateways)
	case !isGatewayName(c.Prefix) || strings.ContainsAny(c.Prefix, "{}"):
		return fmt.Errorf("redis: prefix %q: want up to %d visible ASCII characters without braces", c.Prefix, maxGatewayName)
	}
	return link.CheckURL(r.URL)
}

// setFleet runs after the settings of store and pace. Gateways that share records or clocks through
// a Redis also share orders through it, because a stop must not affect only one of them.
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
	case f.Expect > maxGateways:
		return fmt.Errorf("expect: %d is not from 1 to %d", f.Expect, maxGateways)
	case c.Name == "":
		return errors.New("each gateway needs its own name: set gateway")
	}
	return nil
}
