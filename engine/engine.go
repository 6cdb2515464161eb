package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/caddylog"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/redact"
	"github.com/crawlgate/crawlgate/internal/sockets"
	"github.com/crawlgate/crawlgate/internal/stall"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Config configures an engine. Every default is filled in and every text is parsed. Nothing changes
// it after [New].
type Config struct {
	// Source is the configuration of the engine as it was loaded, for the digest.
	Source []byte
	// Name is the gateway's name in logs; empty for none.
	Name string
	// Help is the base of the links in refusals.
	Help enforce.Help
	// Anonymous says that the User-Agent of fetches names no contact of the operator.
	Anonymous bool
	Store     Store
	// Cache is complete except for Store, Fetcher and Observer.
	Cache robotscache.Config
	// Fetch is complete. If its transport is nil, it is made from Egress.
	Fetch fetch.Config
	// Egress is complete except for the guard's Listener. Its dialer has a guard.
	Egress egress.TransportConfig
	// Politeness is what each request requires of the clocks.
	Politeness enforce.Politeness
	// Clocks is complete except for Observer and Shared.
	Clocks pace.Config
	// SharedClocks is the URL of the Redis that keeps the clocks of several gateways, or empty.
	SharedClocks string
	// Prefix separates fleets in one database of a Redis: it is part of all keys and channels.
	Prefix string
	// Fleet configures the gateways that orders reach. Without a URL, there is only this one.
	Fleet  Fleet
	Limits Limits
	// MinRate is the one of Limits in bytes per second. 0 means no limit.
	MinRate int64
	// AllowFor is the longest time of an exception that is given at run time; 0 permits none.
	AllowFor time.Duration
	// Signals says which of the sites' signals are read.
	Signals enforce.Signals
	// Redact lists the fields whose values are not logged.
	Redact redact.Fields
	// ServeUnlogged lets requests pass while an access log accepts no lines.
	ServeUnlogged bool
}

// Limits bound what clients may take of the gateway. They count over reloads. Connections are
// counted by the listener wrapper `robots`.
type Limits struct {
	// Connections is how many connections all clients may have open. One more gets 503 with
	// Retry-After and is closed; on a TLS port it is closed without an answer. Default: three
	// quarters of the file descriptors that the process may have, or 12288 if that is not known;
	// the others are for origins and the store.
	Connections int `json:"connections,omitempty"`
	// ConnectionsPerSource is the same for each address of a client, or each /64 of IPv6. Behind
	// `proxy_protocol`, the address that it names counts. Default: three quarters of `connections`.
	ConnectionsPerSource int `json:"connections_per_source,omitempty"`
	// RequestsPerAgent is how many requests of one agent may be in progress, those in intercepted
	// tunnels included. One more gets 503 (`agent_limit`) with Retry-After. An agent may also have
	// 16384 tunnels open. Default: 16384.
	RequestsPerAgent int `json:"requests_per_agent,omitempty"`
	// TunnelAge is the greatest age of a tunnel. A blind tunnel is cut; an intercepted one ends
	// with its next answer. Default: 24h.
	TunnelAge caddy.Duration `json:"tunnel_age,omitempty"`
	// MinRate is the minimum transfer rate of client and origin, such as `100B/s` or `2KiB/s`,
	// averaged over a minute of the time in which it is their turn; `off` sets none. A slower
	// upload ends with 408 (`client_timeout`) or 504 (`stalled`), and a slower answer is broken
	// off. Event streams, WebSocket and blind tunnels are exempt. Default: `100B/s`.
	MinRate string `json:"min_rate,omitempty"`
}

// Engine is the engine of one configuration. It is safe for concurrent use.
type Engine struct {
	// Config is not changed after [New], nor are the fields below.
	Config Config
	// Transport is for requests to origins.
	Transport *egress.Transport
	// OutsideTransport is for requests that strangers cause. It uses a new connection for each, and
	// connects only to public addresses, even if the operator has opened others: its answers must not
	// reveal an internal network.
	OutsideTransport *egress.Transport
	// ConfigDigest identifies the configuration of the engine and all its sites: if two digests are
	// equal, the operator's rules were the same. It is the first 16 hexadecimal digits of a SHA-256.
	// It may be called once all sites are provisioned.
	ConfigDigest func() string

	ctx     caddy.Context
	logger  *zap.Logger
	robots  *egress.Transport // for robots.txt: exactly one request per attempt
	fetcher *fetch.Fetcher
	files   *fetch.Fetcher // for TDM files
	stops   *stopState
	keys    agentKeys
	emitter *emitter // nil without an events app
	sitesMu sync.Mutex
	sites   []*SitePolicy           // guarded by sitesMu
	listens atomic.Pointer[listens] // the addresses since its start
	wrapped []*caddyhttp.Server     // servers with the listener wrapper, or with a warning that it is missing
	needed  []string                // agents that other handlers refer to
	loaded  time.Time
	log     stall.Log // the access logs of this configuration

	accessLogs func() []*zap.Logger // of the sites
	unwritten  unwritten            // of the lines for these
	telling    chan struct{}        // full while a line about an existing record is being written

	acquired []string    // keys of the values that outlive a reload
	retired  atomic.Bool // another configuration has replaced it; its last requests are in progress

	opening  sync.Once
	entering sync.Once
	failure  error // of opening; the four fields below are set if it is nil
	records  *records
	pacing   *pacing
	fleet    *fleetState // nil without a fleet
	budgets  *budgets
}

// New checks everything that can be checked without the store, and builds the parts that belong
// only to this configuration. The store is opened only for a configuration that will be started,
// because `validate` must work next to a running gateway that has the store open. The caller must
// call [Engine.Close].
func New(ctx caddy.Context, c Config) (*Engine, error) {
	e := &Engine{Config: c, ctx: ctx, logger: ctx.Logger(), loaded: time.Now(), telling: make(chan struct{}, 1)}
	e.ConfigDigest = sync.OnceValue(e.digestSources)
	e.accessLogs = sync.OnceValue(e.findAccessLogs)
	sockets.Process.Changed() // the admin endpoint may have moved
	if err := e.provision(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Engine) provision() (err error) {
	e.stops, err = acquire(e, "stops", func() (*stopState, error) { return new(stopState), nil })
	if err != nil {
		return err
	}
	if err := e.buildEgress(); err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	if e.emitter, err = newEmitter(e.ctx); err != nil {
		return err
	}
	config := e.Config.Fetch
	if config.Transport == nil {
		config.Transport, config.Proxied = e.robots, e.robots.Proxied
	}
	config.Transport = robotsTransport{config.Transport, e.StopsFetch}
	e.fetcher = fetch.New(config)
	// A redirect would lead to a path that no rules were checked for, so none is followed.
	config.Path, config.MaxRedirects, config.Soft404 = tdmPath, -1, false
	e.files = fetch.New(config)
	if err := RegisterMetrics(e.ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if e.toStart() {
		return e.Open()
	}
	return nil
}

func (e *Engine) buildEgress() (err error) {
	config := e.Config.Egress
	config.Dialer.Guard.Listener = listenerAt
	if e.Transport, err = egress.NewTransport(config); err != nil {
		return err
	}
	config.FreshFor = e.Transport
	strict, public := *config.Dialer, *config.Dialer.Guard
	public.AllowPrivate = nil
	strict.Guard = &public
	outside := config
	outside.Dialer = &strict
	if e.OutsideTransport, err = egress.NewTransport(outside); err != nil {
		return err
	}
	config.ResponseHeaderTimeout = e.Config.Cache.Budget // the only time limit of a fetch
	e.robots, err = egress.NewTransport(config)
	return err
}

// Of returns the engine of the configuration that is being provisioned.
func Of(ctx caddy.Context) (*Engine, error) {
	app, err := App[interface{ Engine() *Engine }]("robots", ctx.App)
	if err != nil {
		return nil, err
	}
	return app.Engine(), nil
}

// App returns an app of Caddy, through one of the two methods of caddy.Context for that.
func App[T any](name string, load func(name string) (any, error)) (app T, err error) {
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

// starting names the configuration that Caddy is about to start, by the channel that closes when it
// ends. Its store is opened before any server listens, because clients must not notice a refused
// configuration.
var starting atomic.Value // of <-chan struct{}

// Starting announces that Caddy is about to start the configuration of ctx, and does not only check
// it. It is called before the apps of the configuration are provisioned.
func Starting(ctx caddy.Context) { starting.Store(ctx.Done()) }

func (e *Engine) toStart() bool { return starting.Load() == e.ctx.Done() }

// errEnded is the error for a request whose configuration was refused before its store was opened.
var errEnded = errors.New("the configuration has ended")

// Open acquires the values that outlive a reload. It does so once per configuration, and then
// returns the same result without a lock. Concurrent callers wait until that is done. Caddy starts
// apps in no particular order: without an admin endpoint, the servers may be up before this app,
// and then their first request opens the store.
//
// If no configuration is current, this one becomes current, because the admin API must know a
// gateway that serves requests.
func (e *Engine) Open() error {
	e.opening.Do(func() {
		if e.failure = e.acquire(); e.failure == nil && Current() == nil {
			e.enter()
		}
	})
	return e.failure
}

// acquire opens the shared parts. If it fails, [Engine.Close] releases those that are open.
func (e *Engine) acquire() error {
	if err := e.stops.load(e.Config.Store.folder()); err != nil {
		return err
	}
	var err error
	isNew := e.Config.Store.isNew()
	if e.records, err = acquireRecords(e); err != nil {
		return err
	}
	open := func(e *Engine, l *link.Link) (*pacing, error) { return openPacing(e, l, isNew) }
	if e.pacing, err = acquireLinked(e, "pacing", "sharing clocks", e.Config.SharedClocks, open); err != nil {
		return err
	}
	if err := caddylog.Start(e.ctx.Done(), e.Config.Name, e.Config.Fleet.URL != "", e.logger.Named("evidence")); err != nil {
		return err
	}
	if e.budgets, err = acquireLinked(e, "budgets", "budgets", e.Config.Fleet.URL, openBudgets); err != nil {
		return err
	}
	if e.Config.Fleet.URL != "" {
		e.fleet, err = acquireLinked(e, "fleet", "fleet", e.Config.Fleet.URL, openFleet)
	}
	return err
}

// enter makes this configuration the current one.
func (e *Engine) enter() {
	e.entering.Do(func() {
		if e.Config.Anonymous {
			e.logger.Warn("sites are not told whom to contact about the fetches of robots.txt: set user_agent",
				zap.String("user_agent", e.Config.Fetch.UserAgent))
		}
		c := &e.Config
		if c.Fleet.URL == c.SharedClocks && c.Store.URL != "" && c.Store.URL != c.SharedClocks {
			e.logger.Warn("orders reach the gateways that share the clocks, but not those that share only the store: set fleet")
		}
		active.enter(e)
	})
}

var stopping sync.Once // starts endStalled

// Start makes this configuration the current one. It fails if another process listens at an address
// of this one, or if an agent is missing that [Engine.NeedsAgent] names.
func (e *Engine) Start() error {
	l, err := listensOf(e)
	if err = errors.Join(err, e.checkNeeded()); err != nil {
		return err
	}
	if err := checkNotInUse(slices.Concat(l.gateways, l.sites)); err != nil {
		return err
	}
	if err := e.Open(); err != nil {
		return err
	}
	e.listens.Store(l)
	sockets.Process.Changed()
	e.enter()
	e.fleet.apply(e)
	active.countAgents()
	stopping.Do(func() { go endStalled() })
	go e.watchLogs()
	return nil
}

// Close releases everything that the engine has acquired. Requests of this configuration may still
// run, and keep the values that they use.
func (e *Engine) Close() error {
	e.opening.Do(func() { e.failure = errEnded }) // waits for an opening in progress, and prevents a new one
	var errs []error
	if e.failure == nil {
		active.leave(e)
		active.countAgents()
	}
	for _, key := range slices.Backward(e.acquired) {
		_, err := pool.Delete(key)
		errs = append(errs, err)
	}
	e.retired.Store(true)
	e.CloseIdle()
	return errors.Join(errs...)
}

// CloseIdle closes idle connections once the configuration is retired, because each request that
// was then in progress leaves one behind.
func (e *Engine) CloseIdle() {
	if e.Transport != nil && e.retired.Load() {
		e.Transport.CloseIdleConnections()
	}
}

func (e *Engine) digestSources() string {
	sites := e.Sites()
	sources := make([]string, 0, len(sites)+1)
	for _, s := range sites {
		sources = append(sources, string(s.Source))
	}
	slices.Sort(sources) // Caddy provisions servers in no particular order
	h := sha256.New()
	for _, s := range append(sources, string(e.Config.Source)) {
		h.Write([]byte(s))
		h.Write([]byte{0}) // never occurs in JSON
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// SourceOf returns the client's address as determined by Caddy. With trusted_proxies it may differ
// from the connection's. A client over a unix socket counts as one on this machine.
func SourceOf(r *http.Request) netip.Addr {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	source, err := netip.ParseAddr(ip)
	if err == nil {
		return source
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasPrefix(local.Network(), "unix") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.Addr{}
}

// NetworkOf returns the network that requests from an address count for: the address itself or, for
// IPv6, its /64, the smallest block that a client gets.
func NetworkOf(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	p, _ := addr.Prefix(min(addr.BitLen(), 64)) // fails only for an invalid address
	return p
}

// Cache returns the cache of the records. The caller must have called [Engine.Open].
func (e *Engine) Cache() *robotscache.Cache { return e.records.cache }

// Pacer returns the pacer with the clocks of the hosts. The caller must have called [Engine.Open].
func (e *Engine) Pacer() *pace.Pacer { return e.pacing.pacer }
