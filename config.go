package crawlgate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/block"
	"github.com/crawlgate/crawlgate/internal/redislink"
	"github.com/crawlgate/crawlgate/internal/version"
)

// The types in this file are the JSON form of the global option in docs/caddyfile.md. settings.go
// turns them into what the engine runs with. A field that is left out has the default that its
// comment names.

func checkStore(c *engine.Store) error {
	if err := oneOf("kind", c.Kind, engine.StoreKinds()...); err != nil {
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
	case c.Kind == "redis":
		return redislink.CheckURL(c.URL)
	}
	return nil
}

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
	// Gateways is how many gateways share that Redis at the least. It counts while Redis cannot be
	// reached and this gateway knows of fewer: one that starts then, for the first time, knows of
	// none. Default 1.
	Gateways int `json:"gateways,omitempty"`
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

func (a *App) readRedis(r *block.Reader, args []string) error {
	a.Redis = &RedisConfig{URL: args[0]}
	return block.Grammar{
		"prefix": block.Text(&a.Redis.Prefix),
		"expect": block.Count(&a.Redis.Expect, 1, maxGateways),
	}.Read(r, "redis")
}

// setRedis sets what store, pace and fleet begin with.
func (a *App) setRedis(c *engine.Config) error {
	r := cmp.Or(a.Redis, new(RedisConfig))
	c.SharedClocks, c.Gateways, c.Prefix = r.URL, r.Expect, cmp.Or(r.Prefix, "crawlgate")
	switch {
	case a.Redis == nil:
		return nil
	case r.URL == "":
		return errors.New("redis needs a url")
	case r.Expect < 0 || r.Expect > maxGateways:
		return fmt.Errorf("redis: expect: %d is not from 1 to %d", r.Expect, maxGateways)
	case !isPrefix(r.Prefix):
		return fmt.Errorf("redis: prefix %q: %s", r.Prefix, wantPrefix)
	}
	return redislink.CheckURL(r.URL)
}

func isPrefix(s string) bool { return isGatewayName(s) && !strings.ContainsAny(s, "{}") }

var wantPrefix = fmt.Sprintf("want up to %d visible ASCII characters without braces", maxGatewayName)

func (a *App) readFleet(r *block.Reader, args []string) error {
	a.Fleet = new(engine.Fleet)
	if args[0] != "redis" {
		return r.Errf(`option "fleet" of robots: unknown kind %q: want redis`, args[0])
	}
	if len(args) == 2 {
		a.Fleet.URL = args[1]
	}
	return block.Grammar{
		"prefix": block.Text(&a.Fleet.Prefix),
		"expect": block.Count(&a.Fleet.Expect, 1, maxGateways),
	}.Read(r, "fleet")
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
	c.Prefix = cmp.Or(f.Prefix, c.Prefix)
	c.Fleet.Self.Name, c.Fleet.Self.Version = c.Name, version.Read()
	switch {
	case c.Fleet.URL == "":
		return errors.New("redis needs a url: neither `pace shared` nor `store redis` has one")
	case f.Expect < 0 || f.Expect > maxGateways:
		return fmt.Errorf("expect: %d is not from 1 to %d", f.Expect, maxGateways)
	case !isPrefix(f.Prefix):
		return fmt.Errorf("prefix %q: %s", f.Prefix, wantPrefix)
	case f.Prefix != "" && r.Prefix != "" && f.Prefix != r.Prefix:
		return fmt.Errorf("prefix %q: redis has prefix %q, and a gateway belongs to one fleet", f.Prefix, r.Prefix)
	case c.Name == "":
		return errors.New("each gateway needs a name of its own: set gateway")
	}
	return redislink.CheckURL(c.Fleet.URL)
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

// oneOf reports whether v is one of allowed or empty (the default).
func oneOf(what, v string, allowed ...string) error {
	if v == "" || slices.Contains(allowed, v) {
		return nil
	}
	return fmt.Errorf("%s %q: want %s", what, v, strings.Join(allowed, ", "))
}
