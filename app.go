package crawlgate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App is the engine that all sites share: the cache of robots.txt rulesets with its store and fetcher, the clocks
// of the hosts, and the transport by which everything leaves. It needs no configuration: a site with the handler
// http.handlers.robots brings it up with its defaults.
//
// What costs something to lose outlives a reload: the rulesets as long as the configuration names the same
// store, the clocks always.
type App struct {
	// UserAgent is sent with every fetch of robots.txt, whichever crawler asked for it. It should
	// name a page or an address by which a site can reach the operator. Default: crawlgate/VERSION
	// (+https://github.com/crawlgate/crawlgate), with a warning at each start.
	UserAgent string `json:"user_agent,omitempty"`
	// Gateway names this gateway in logs: up to 64 visible ASCII octets. Default: the name of the host.
	Gateway string `json:"gateway,omitempty"`
	// Help is what links in refusals begin with: a URL, which the reason follows, such as tls-alert. Default: the project's
	// pages on reasons, of the version that runs.
	Help   string        `json:"help,omitempty"`
	Store  *StoreConfig  `json:"store,omitempty"`
	Cache  *CacheConfig  `json:"cache,omitempty"`
	Fetch  *FetchConfig  `json:"fetch,omitempty"`
	Pace   *PaceConfig   `json:"pace,omitempty"`
	Egress *EgressConfig `json:"egress,omitempty"`
	Limits *LimitsConfig `json:"limits,omitempty"`
	// IndexHTML lets "Allow: /x/index.html" allow /x/ too, as Google's parser does and RFC 9309 does not. Default off.
	IndexHTML bool `json:"index_html,omitempty"`
	// Redact lists the fields of proxied requests and their answers whose values are not logged; "off" alone stands for
	// none. Default: those by which common APIs take and give keys. Authorization, Proxy-Authorization, Cookie and
	// Set-Cookie are left to Caddy, which does not log them without log_credentials.
	Redact []string `json:"redact,omitempty"`

	ctx       caddy.Context
	cfg       settings
	logger    *zap.Logger
	dialer    *egress.Dialer
	transport *egress.Transport
	fetching  *egress.Transport // for robots.txt: one request an attempt, whatever becomes of it
	fetcher   *fetch.Fetcher
	stops     *stops
	emitter   *emitter // nil without an events app
	sites     sites
	listens   atomic.Pointer[listens] // since its start
	wrapped   []*caddyhttp.Server     // have the listener wrapper, or a warning that they have not

	retired atomic.Bool // another configuration is in force; the last requests of this one are under way

	opening  sync.Once
	entering sync.Once
	failure  error // of the opening; the two below are set where it is nil
	rulesets *rulesets
	clocks   *clocks
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "robots", New: func() caddy.Module { return new(App) }}
}

// loadApp gives the engine of the configuration that is being provisioned.
func loadApp(ctx caddy.Context) (*App, error) { return appOf[*App]("robots", ctx.App) }

// appOf gives an app of Caddy, by one of the two methods of caddy.Context that do so.
func appOf[T any](name string, load func(name string) (any, error)) (app T, err error) {
	value, err := load(name)
	if err != nil {
		return app, fmt.Errorf("loading the %s app: %w", name, err)
	}
	app, ok := value.(T)
	if !ok {
		return app, fmt.Errorf("the %s app is a %T", name, value)
	}
	return app, nil
}

// Provision checks the configuration and builds what belongs to it alone. The store is opened only for a configuration
// that will be started: `validate` must work beside a running gateway, which holds the store.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger = ctx, ctx.Logger()
	listening.Changed() // the admin endpoint may have moved
	var err error
	if a.cfg, err = a.settings(); err != nil {
		return err
	}
	if a.stops, err = acquireStops(); err != nil {
		return err
	}
	replacer := caddy.NewReplacer()
	for _, s := range []*string{&a.cfg.store.URL, &a.cfg.store.Path, &a.cfg.pace.shared} {
		*s = replacer.ReplaceKnown(*s, "")
	}
	if a.cfg.store.Kind == "file" { // two spellings of one path are one store
		if a.cfg.store.Path, err = filepath.Abs(a.cfg.store.Path); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if err := a.buildEgress(); err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	if a.emitter, err = newEmitter(ctx); err != nil {
		return err
	}
	a.fetcher = fetch.New(fetch.Config{
		Transport:    robotsTransport{a.fetching, a.stopsFetch},
		UserAgent:    a.cfg.userAgent,
		Timeout:      a.cfg.fetch.timeout,
		MaxRedirects: a.cfg.fetch.maxRedirects,
		MaxSize:      a.cfg.fetch.maxSize,
		Soft404:      a.cfg.fetch.soft404,
	})
	if err := instruments.register(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if a.toStart() {
		return a.open()
	}
	return nil
}

// toStart reports whether Caddy is about to start this configuration, and not only checks it.
func (a *App) toStart() bool { return starting.Load() == a.ctx.Done() }

func (a *App) buildEgress() error {
	guard := &egress.Guard{AllowPrivate: a.cfg.egress.allowPrivate, Ports: a.cfg.egress.ports, Listener: listenerAt}
	a.dialer = &egress.Dialer{Guard: guard, Timeout: a.cfg.egress.dialTimeout}
	config := egress.TransportConfig{
		Dialer:                a.dialer,
		ResponseHeaderTimeout: a.cfg.egress.responseHeaderTimeout,
	}
	if files := a.cfg.egress.trustCA; len(files) > 0 {
		pems := make([][]byte, 0, len(files))
		for _, name := range files {
			pem, err := os.ReadFile(name)
			if err != nil {
				return fmt.Errorf("trust_ca: %w", err)
			}
			pems = append(pems, pem)
		}
		var err error
		if config.RootCAs, err = egress.TrustedRoots(pems...); err != nil {
			return fmt.Errorf("trust_ca %v: %w", files, err)
		}
	}
	for _, u := range a.cfg.egress.upstreams {
		up, err := u.upstream()
		if err != nil {
			return fmt.Errorf("upstream: %w", err)
		}
		config.Upstreams = append(config.Upstreams, up)
	}
	var err error
	if a.transport, err = egress.NewTransport(config); err != nil {
		return err
	}
	config.Fresh = true
	a.fetching, err = egress.NewTransport(config)
	return err
}

// upstream parses one proxy. Its URL may hold credentials, which no error repeats.
func (u UpstreamConfig) upstream() (egress.Upstream, error) {
	parsed, err := url.Parse(caddy.NewReplacer().ReplaceKnown(u.URL, ""))
	if err != nil {
		return egress.Upstream{}, errors.New("url cannot be parsed")
	}
	up := egress.Upstream{URL: parsed}
	if err := up.Check(); err != nil {
		return egress.Upstream{}, err
	}
	if len(u.Hosts) > 0 {
		if up.Match, err = upstreamHosts(u.Hosts); err != nil {
			return egress.Upstream{}, err
		}
	}
	return up, nil
}

// starting names the configuration that Caddy is about to start, by the channel that closes when it ends. Its store is opened
// before any server listens: clients must not notice a configuration that is refused. See [adminAPI.Provision].
var starting atomic.Value // of <-chan struct{}

// errEnded is what a request finds whose configuration was refused before its store was opened.
var errEnded = errors.New("the configuration has ended")

// open takes hold of what outlives a reload. It does so once for a configuration, and then returns the same result without
// a lock. A caller that comes meanwhile waits. Caddy starts apps in no particular order: without an admin endpoint the
// servers may be up before this app, and their first request opens the store.
//
// Where no configuration is in force, this one is from then on: the admin API is to know a gateway that takes requests.
func (a *App) open() error {
	a.opening.Do(func() {
		if a.failure = a.acquire(); a.failure == nil && engines.inForce() == nil {
			a.enter()
		}
	})
	return a.failure
}

// enter makes this configuration the one in force.
func (a *App) enter() {
	a.entering.Do(func() {
		if a.UserAgent == "" {
			a.logger.Warn("sites are not told whom to contact about the fetches of robots.txt: set user_agent",
				zap.String("user_agent", a.cfg.userAgent))
		}
		a.rulesets.holders.enter(a, a.rulesets.apply)
		a.clocks.holders.enter(a, a.clocks.apply)
		engines.enter(a, func(*App) {})
	})
}

func (a *App) acquire() error {
	if err := a.stops.load(folderOf(a.cfg.store)); err != nil {
		return err
	}
	r, err := acquireRulesets(a)
	if err != nil {
		return err
	}
	c, err := acquireClocks(a)
	if err != nil {
		return errors.Join(err, r.release(a))
	}
	a.rulesets, a.clocks = r, c
	return nil
}

// Start makes this configuration the one in force. It fails where another process listens at an
// address of this one.
func (a *App) Start() error {
	l, err := listensOf(a)
	if err != nil {
		return err
	}
	if err := alone(slices.Concat(l.gateways, l.sites)); err != nil {
		return err
	}
	if err := a.open(); err != nil {
		return err
	}
	a.listens.Store(l)
	listening.Changed()
	a.enter()
	return nil
}

// Stop gives way to the configuration that was in force before or comes after.
func (a *App) Stop() error { return nil }

// Cleanup gives back what open took. Requests of this configuration may still run: they keep what they use.
func (a *App) Cleanup() error {
	a.opening.Do(func() { a.failure = errEnded }) // waits for an opening that is under way, and lets none begin
	var errs []error
	a.emitter.stop()
	if a.failure == nil {
		engines.leave(a, func(*App) {})
		errs = append(errs, a.clocks.release(a), a.rulesets.release(a))
	}
	if a.stops != nil {
		errs = append(errs, a.stops.release())
	}
	a.retired.Store(true)
	a.letGo()
	return errors.Join(errs...)
}

// letGo closes the connections that no request uses any more, once the configuration is out of force: each request that
// was under way then leaves one behind.
func (a *App) letGo() {
	if a.transport != nil && a.retired.Load() {
		a.transport.CloseIdleConnections()
	}
}

// Lookup gives the record of an origin, fetching it if it must: the one thing that package enforce needs. The caller has
// called open.
func (a *App) Lookup(ctx context.Context, o origin.Origin) (*robotscache.Entry, robotscache.Source, error) {
	began := time.Now()
	entry, source, err := a.rulesets.cache.Lookup(ctx, o)
	looked(ctx, began, o, source, err)
	return entry, source, err
}

// kills is the kill switch, which no reload resets.
func (a *App) kills() *enforce.KillSwitch { return &a.stops.switches }

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
