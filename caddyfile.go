package crawlgate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/block"
	"github.com/crawlgate/crawlgate/proxy/admission"
	"github.com/crawlgate/crawlgate/proxy/reach"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("robots", parseGlobal)
	httpcaddyfile.RegisterDirective("robots", parseDirective)
	// Handlers that answer requests, such as `respond`, must not get proxied requests first.
	httpcaddyfile.RegisterDirectiveOrder("robots", httpcaddyfile.Before, "abort")
}

// parseGlobal reads the global option `robots`.
func parseGlobal(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next() // the option's name
	if existing != nil {
		return nil, d.Err(`global option "robots" is given twice`)
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "robots", Value: caddyconfig.JSON(app, nil)}, nil
}

// parseDirective reads the directive `robots`.
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // the directive's name
	if err := reach.CheckDirective(h); err != nil {
		return nil, err
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	values := h.NewRoute(nil, handler)
	if atTop(h) {
		values = append(values, httpcaddyfile.ConfigValue{Class: "listener_wrapper", Value: new(admission.Listener)})
	}
	return values, nil
}

// atTop reports whether a directive is directly in a site, and not in a `handle` or `route`,
// which accept only routes. Within those, the state of the block is a copy.
func atTop(h httpcaddyfile.Helper) bool {
	if h.BlockState == nil { // no Caddyfile
		return false
	}
	const mark = "robots is at the top"
	h.BlockState[mark] = true
	defer delete(h.BlockState, mark)
	return h.State[mark] == true
}

// UnmarshalCaddyfile reads the global option. docs/caddyfile.md has its lines.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return block.Segment(d, a, func() *App { return new(App) }, (*App).read, (*App).settings)
}

func (a *App) read(r *block.Reader) error {
	if r.NextArg() {
		return r.Errf(`global option "robots" takes no argument, found %q`, r.Val())
	}
	return block.Fields(a, nil, block.Grammar{
		"redis":     {Min: 1, Max: 1, Block: a.readRedis},
		"store":     {Min: 1, Max: 2, Block: a.readStore},
		"allow_for": block.Parsed(&a.AllowFor, parseAllowFor),
		"fleet":     {Min: 1, Max: 2, Block: a.readFleet},
		"fetch":     block.Nested(a.readFetch),
		"pace":      block.Nested(a.readPace),
		"egress":    block.Nested(a.readEgress),
	}).Read(r, "robots")
}

// parseAllowFor reads a duration, or "off" as 0.
func parseAllowFor(s string) (*caddy.Duration, error) {
	if s == "off" {
		return new(caddy.Duration), nil
	}
	d, err := block.ParseDuration(s)
	return &d, err
}

func (a *App) readStore(r *block.Reader, args []string) error {
	c := &engine.Store{Kind: args[0]}
	a.Store = c
	if module, err := caddy.GetModule("robots.stores." + c.Kind); err == nil && !c.OwnKind() {
		return readModule(r, module, args, c)
	}
	switch {
	case args[0] == "file" && len(args) == 2:
		c.Path = args[1]
	case args[0] == "redis" && len(args) == 2:
		c.URL = args[1]
	case args[0] == "none" && len(args) == 2:
		return r.Errf(`option "store" of robots: "none" takes no argument, found %q`, args[1])
	}
	return block.Fields(c, map[string]string{"kind": "", "path": "", "url": ""}, nil).Read(r, "store")
}

// readModule lets a module read its own line and block, and keeps the result as JSON.
func readModule(r *block.Reader, module caddy.ModuleInfo, args []string, dst json.Unmarshaler) error {
	value, ok := module.New().(caddyfile.Unmarshaler)
	if !ok {
		return r.Errf("module %s cannot be configured in a Caddyfile", module.ID)
	}
	segment := r.NextSegment()
	line := make(caddyfile.Segment, 0, len(args)+len(segment))
	for _, arg := range args {
		token := segment[0]
		token.Text = arg
		line = append(line, token)
	}
	if err := value.UnmarshalCaddyfile(caddyfile.NewDispenser(append(line, segment[1:]...))); err != nil {
		return err
	}
	return dst.UnmarshalJSON(caddyconfig.JSONModuleObject(value, "kind", module.ID.Name(), nil))
}

func (a *App) readRedis(r *block.Reader, args []string) error {
	a.Redis = &RedisConfig{URL: args[0]}
	special := block.Grammar{"expect": block.Count(&a.Redis.Expect, 1, maxGateways)}
	return block.Fields(a.Redis, map[string]string{"url": ""}, special).Read(r, "redis")
}

func (a *App) readFleet(r *block.Reader, args []string) error {
	a.Fleet = new(engine.Fleet)
	if args[0] != "redis" {
		return r.Errf(`option "fleet" of robots: unknown kind %q: want redis`, args[0])
	}
	if len(args) == 2 {
		a.Fleet.URL = args[1]
	}
	return block.Grammar{"expect": block.Count(&a.Fleet.Expect, 1, maxGateways)}.Read(r, "fleet")
}

func (a *App) readFetch(r *block.Reader) error {
	a.Fetch = new(FetchConfig)
	f := a.Fetch
	return block.Fields(f, map[string]string{"retry_first": "", "retry_longest": ""}, block.Grammar{
		"retry":    {Min: 2, Max: 2, Set: block.Durations(block.ParsePositive, &f.RetryFirst, &f.RetryLongest)},
		"parallel": block.Count(&f.Parallel, 1, 100_000),
	}).Read(r, "fetch")
}

func (a *App) readPace(r *block.Reader) error {
	a.Pace = new(PaceConfig)
	p := a.Pace
	return block.Fields(p, nil, block.Grammar{
		"burst":       block.Count(&p.Burst, 1, 100_000),
		"concurrency": block.Count(&p.Concurrency, 1, 100_000),
		"crawl_delay": {Min: 2, Max: 3, Set: p.setCrawlDelay},
		"per":         {Min: 1, Max: 3, Set: block.List(&p.Per).Set},
		"backoff":     {Min: 1, Max: 2, Set: p.setBackoff},
		"shared":      {Min: 2, Max: 2, Set: p.setShared},
	}).Read(r, "pace")
}

func (p *PaceConfig) setCrawlDelay(args []string) error {
	p.CrawlDelay = new(CrawlDelayConfig)
	c := p.CrawlDelay
	if err := block.Durations(block.ParseDuration, &c.Min, &c.Max)(args); err != nil {
		return err
	}
	if len(args) == 3 {
		c.Above = args[2]
	}
	return nil
}

func (p *PaceConfig) setBackoff(args []string) error {
	p.Backoff = new(BackoffConfig)
	if len(args) == 2 {
		return block.Durations(block.ParsePositive, &p.Backoff.First, &p.Backoff.Longest)(args)
	}
	if args[0] != "off" {
		return fmt.Errorf(`unknown value %q: want "off" or a first and a longest pause`, args[0])
	}
	p.Backoff.Off = true
	return nil
}

func (p *PaceConfig) setShared(args []string) error {
	if args[0] != "redis" {
		return fmt.Errorf("unknown kind %q: want redis", args[0])
	}
	p.Shared = args[1]
	return nil
}

func (a *App) readEgress(r *block.Reader) error {
	a.Egress = new(EgressConfig)
	e := a.Egress
	special := block.Grammar{"upstream": {Min: 1, Max: -1, Repeat: true, Set: e.addUpstream}}
	return block.Fields(e, nil, special).Read(r, "egress")
}

func (e *EgressConfig) addUpstream(args []string) error {
	u := UpstreamConfig{URL: args[0], Hosts: args[1:]}
	e.Upstreams = append(e.Upstreams, u)
	if strings.Contains(u.URL, "{") { // a placeholder, whose value may be known only on the gateway's machine
		u.URL = "http://placeholder"
	}
	_, err := u.upstream()
	return err
}
