package crawlgate

import (
	"encoding/json"
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
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
