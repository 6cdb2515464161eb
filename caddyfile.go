package crawlgate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/crawlgate/crawlgate/internal/redact"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("robots", parseGlobal)
	httpcaddyfile.RegisterDirective("robots", parseDirective)
	// Before all that answers by itself: `respond` or `abort` beside the gateway must not take proxied requests from it.
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
	if err := checkPlace(h); err != nil {
		return nil, err
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	values := h.NewRoute(nil, handler)
	if atTop(h) {
		values = append(values, httpcaddyfile.ConfigValue{Class: "listener_wrapper", Value: new(Listener)})
	}
	return values, nil
}

// atTop reports whether a directive stands in a site itself, and not in a `handle` or `route` there, which take routes
// only: within those the state of the block is a copy.
func atTop(h httpcaddyfile.Helper) bool {
	if h.BlockState == nil { // no Caddyfile
		return false
	}
	const mark = "robots is at the top"
	h.BlockState[mark] = true
	defer delete(h.BlockState, mark)
	return h.State[mark] == true
}

// UnmarshalCaddyfile reads the engine that all sites share. All lines are optional; the values shown are the
// defaults.
//
//	robots {
//		user_agent <text>
//		gateway <name>
//		help <url>
//		store file [<path>] | redis <url> | none
//		index_html on|off
//		redact <field>... | off
//		cache {
//			max_size 256MiB
//			ttl 24h
//			min_ttl 5m
//		}
//		fetch {
//			timeout 20s
//			max_redirects 5
//			max_size 500KiB
//			retry 1m 1h
//			unreachable spec|stale|google|strict
//			unreachable_for 720h
//			forbidden allow|disallow
//			soft_404 detect|off
//			parallel 256
//		}
//		pace {
//			rate 5/s
//			burst 5
//			concurrency 8
//			crawl_delay 0s 30s clamp|refuse|honor
//			wait 10s
//			queue 1000
//			per host|site|address...
//			backoff 60s 24h | off
//			shared redis <url> [<gateways>]
//		}
//		egress {
//			allow_private <cidr>...
//			ports 80 443 1024-65535
//			trust_ca <pem-file>...
//			upstream <url> [<host>...]
//			dial_timeout 10s
//			response_header_timeout 60s
//		}
//		limits {
//			connections <number>
//			connections_per_source <number>
//			requests_per_agent 16384
//			tunnels_per_agent 16384
//			tunnel_age 24h
//			header_size 16KiB
//			url_size 16KiB
//			min_rate 100B/s | off
//			body_timeout 10m
//		}
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return readWhole(d, a, func() whole { return new(App) })
}

func (a *App) check() error {
	if _, err := a.settings(); err != nil {
		return fmt.Errorf("robots: %w", err)
	}
	return nil
}

func (a *App) read(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Errf(`global option "robots" takes no argument, found %q`, d.Val())
	}
	return block{
		"user_agent": text(&a.UserAgent),
		"gateway":    text(&a.Gateway),
		"help":       text(&a.Help),
		"store":      {min: 1, max: 2, set: a.setStore},
		"index_html": onOff(&a.IndexHTML),
		"redact":     {min: 1, max: -1, repeat: true, set: a.addRedact},
		"cache":      nested(a.readCache),
		"fetch":      nested(a.readFetch),
		"pace":       nested(a.readPace),
		"egress":     nested(a.readEgress),
		"limits":     nested(a.readLimits),
	}.read(d, "robots")
}

func (a *App) setStore(_ *caddyfile.Dispenser, args []string) error {
	a.Store = &StoreConfig{Kind: args[0]}
	switch {
	case args[0] == "file" && len(args) == 2:
		a.Store.Path = args[1]
	case args[0] == "redis" && len(args) == 2:
		a.Store.URL = args[1]
	case args[0] == "redis":
		return errors.New(`"redis" needs a url`)
	case args[0] == "none" && len(args) == 2:
		return fmt.Errorf(`"none" takes no argument, found %q`, args[1])
	}
	return a.Store.check()
}

func (a *App) addRedact(_ *caddyfile.Dispenser, args []string) error {
	a.Redact = append(a.Redact, args...)
	_, err := redact.New(a.Redact)
	return err
}

func (a *App) readCache(d *caddyfile.Dispenser) error {
	a.Cache = new(CacheConfig)
	return block{
		"max_size": size(&a.Cache.MaxSize),
		"ttl":      duration(&a.Cache.TTL),
		"min_ttl":  duration(&a.Cache.MinTTL),
	}.read(d, "cache")
}

func (a *App) readFetch(d *caddyfile.Dispenser) error {
	a.Fetch = new(FetchConfig)
	f := a.Fetch
	return block{
		"timeout":         duration(&f.Timeout),
		"max_redirects":   {min: 1, max: 1, set: f.setMaxRedirects},
		"max_size":        size(&f.MaxSize),
		"retry":           {min: 2, max: 2, set: f.setRetry},
		"unreachable":     choice(&f.Unreachable, "spec", "stale", "google", "strict"),
		"unreachable_for": duration(&f.UnreachableFor),
		"forbidden":       choice(&f.Forbidden, "allow", "disallow"),
		"soft_404":        choice(&f.SoftNotFound, "detect", "off"),
		"parallel":        count(&f.Parallel, 1, 100_000),
	}.read(d, "fetch")
}

func (f *FetchConfig) setMaxRedirects(_ *caddyfile.Dispenser, args []string) error {
	n, err := parseCount(args[0], 0, 20)
	f.MaxRedirects = &n
	return err
}

func (f *FetchConfig) setRetry(_ *caddyfile.Dispenser, args []string) (err error) {
	return pauses(args, &f.RetryFirst, &f.RetryLongest)
}

// pauses reads two spans above 0 of which the first is not longer than the second.
func pauses(args []string, first, second *caddy.Duration) error {
	if _, err := parsePositive(args[0]); err != nil {
		return err
	}
	return durations(args, first, second)
}

// durations reads two spans of which the first is not longer than the second.
func durations(args []string, first, second *caddy.Duration) (err error) {
	if *first, err = parseDuration(args[0]); err != nil {
		return err
	}
	if *second, err = parseDuration(args[1]); err != nil {
		return err
	}
	if *first > *second {
		return fmt.Errorf("%s is longer than %s", args[0], args[1])
	}
	return nil
}

func (a *App) readPace(d *caddyfile.Dispenser) error {
	a.Pace = new(PaceConfig)
	p := a.Pace
	return block{
		"rate":        {min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error { return setRate(&p.Rate, args[0]) }},
		"burst":       count(&p.Burst, 1, 100_000),
		"concurrency": count(&p.Concurrency, 1, 100_000),
		"crawl_delay": {min: 2, max: 3, set: p.setCrawlDelay},
		"wait":        {min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error { return setSpan(&p.Wait, args[0]) }},
		"queue":       count(&p.Queue, 1, 1_000_000),
		"per":         {min: 1, max: 3, set: p.setPer},
		"backoff":     {min: 1, max: 2, set: p.setBackoff},
		"shared":      {min: 2, max: 3, set: p.setShared},
	}.read(d, "pace")
}

// setSpan sets an optional duration, for which 0 is a value of its own.
func setSpan(dst **caddy.Duration, s string) error {
	v, err := parseDuration(s)
	*dst = &v
	return err
}

func (p *PaceConfig) setCrawlDelay(_ *caddyfile.Dispenser, args []string) error {
	p.CrawlDelay = new(CrawlDelayConfig)
	if err := durations(args, &p.CrawlDelay.Min, &p.CrawlDelay.Max); err != nil {
		return err
	}
	if len(args) == 3 {
		p.CrawlDelay.Above = args[2]
	}
	return oneOf("action", p.CrawlDelay.Above, "clamp", "refuse", "honor")
}

func (p *PaceConfig) setPer(_ *caddyfile.Dispenser, args []string) error {
	p.Per = args
	return checkPer(args)
}

func (p *PaceConfig) setBackoff(_ *caddyfile.Dispenser, args []string) error {
	p.Backoff = new(BackoffConfig)
	if len(args) == 1 {
		if args[0] != "off" {
			return fmt.Errorf(`unknown value %q: want "off" or a first and a longest pause`, args[0])
		}
		p.Backoff.Off = true
		return nil
	}
	return pauses(args, &p.Backoff.First, &p.Backoff.Longest)
}

func (p *PaceConfig) setShared(_ *caddyfile.Dispenser, args []string) error {
	if args[0] != "redis" {
		return fmt.Errorf("unknown kind %q: want redis", args[0])
	}
	p.Shared = args[1]
	if len(args) == 3 {
		var err error
		if p.Gateways, err = parseCount(args[2], 1, maxGateways); err != nil {
			return fmt.Errorf("number of gateways %q: want 1 to %d", args[2], maxGateways)
		}
	}
	return checkRedisURL(args[1])
}

func (a *App) readEgress(d *caddyfile.Dispenser) error {
	a.Egress = new(EgressConfig)
	e := a.Egress
	return block{
		"allow_private":           list(&e.AllowPrivate),
		"ports":                   list(&e.Ports),
		"trust_ca":                list(&e.TrustCA),
		"upstream":                {min: 1, max: -1, repeat: true, set: e.addUpstream},
		"dial_timeout":            duration(&e.DialTimeout),
		"response_header_timeout": duration(&e.ResponseHeaderTimeout),
	}.read(d, "egress")
}

func (e *EgressConfig) addUpstream(_ *caddyfile.Dispenser, args []string) error {
	u := UpstreamConfig{URL: args[0], Hosts: args[1:]}
	e.Upstreams = append(e.Upstreams, u)
	if strings.Contains(u.URL, "{") { // a placeholder, which may be known only where the gateway runs
		u.URL = "http://placeholder"
	}
	_, err := u.upstream()
	return err
}

func (a *App) readLimits(d *caddyfile.Dispenser) error {
	a.Limits = new(LimitsConfig)
	l := a.Limits
	return block{
		"connections":            count(&l.Connections, 1, 1_000_000),
		"connections_per_source": count(&l.ConnectionsPerSource, 1, 1_000_000),
		"requests_per_agent":     count(&l.RequestsPerAgent, 1, 1_000_000),
		"tunnels_per_agent":      count(&l.TunnelsPerAgent, 1, 1_000_000),
		"tunnel_age":             duration(&l.TunnelAge),
		"header_size":            requestSize(&l.HeaderSize),
		"url_size":               requestSize(&l.URLSize),
		"min_rate":               {min: 1, max: 1, set: l.setMinRate},
		"body_timeout":           duration(&l.BodyTimeout),
	}.read(d, "limits")
}

// requestSize is an option for the most octets of a header or a URL.
func requestSize(dst *int64) option {
	o := size(dst)
	read := o.set
	o.set = func(d *caddyfile.Dispenser, args []string) error {
		if err := read(d, args); err != nil {
			return err
		}
		return checkRequestSize(*dst)
	}
	return o
}

func (l *LimitsConfig) setMinRate(_ *caddyfile.Dispenser, args []string) error {
	l.MinRate = args[0]
	_, err := parseMinRate(args[0])
	return err
}

// UnmarshalCaddyfile reads the gateway of one site.
//
//	robots {
//		mode enforce|report|off [<host-pattern>...]
//		clients <cidr>...|any
//		agent <name> {
//			token <product-token>...
//			user_agent <pattern>...
//			credential <user> <password-hash>
//			from <cidr>...
//			client_certificate <cn-or-san>...
//			ignore_wildcard_group
//			owner <text>
//			contact <text>
//			rate <rate>
//			mode enforce|report|off
//		}
//		unidentified deny|allow
//		connect intercept|tunnel|deny [<host-pattern>...]
//		except <host-pattern>... {
//			path <prefix>...
//			agent <name>...
//			until <date>
//			reason <text>
//		}
//		paths strict|as_sent
//		deny <host-pattern>...
//		max_wait <duration>
//		egress off
//		decision_header on|off
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return readWhole(d, h, func() whole { return &Handler{known: h.Agents} })
}

func (h *Handler) check() error {
	if _, err := h.policy(); err != nil {
		return fmt.Errorf("robots: %w", err)
	}
	return nil
}

func (h *Handler) read(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		if strings.ContainsAny(d.Val()[:min(len(d.Val()), 1)], "/@*") {
			return d.Errf(`directive "robots" takes no matcher, found %q: Caddy would answer what it does not match with an empty 200`, d.Val())
		}
		return d.Errf(`directive "robots" takes no argument, found %q`, d.Val())
	}
	return block{
		"mode":         {min: 1, max: -1, repeat: true, set: h.setMode},
		"clients":      {min: 1, max: -1, repeat: true, set: h.addClients},
		"agent":        {min: 1, max: 1, repeat: true, nested: true, set: h.addAgent},
		"unidentified": choice(&h.Unidentified, "deny", "allow"),
		"connect":      {min: 1, max: -1, repeat: true, set: h.addConnect},
		"except":       {min: 1, max: -1, repeat: true, nested: true, set: h.addException},
		"paths":        choice(&h.Paths, "strict", "as_sent"),
		"deny":         list(&h.Deny),
		"max_wait":     {min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error { return setSpan(&h.MaxWait, args[0]) }},
		"egress":       {min: 1, max: 1, set: h.setEgress},

		"decision_header": onOff(&h.DecisionHeader),
	}.read(d, "robots")
}

// setMode reads the mode of the gateway or, with patterns, that of some hosts.
func (h *Handler) setMode(_ *caddyfile.Dispenser, args []string) error {
	if _, err := parseMode(args[0]); err != nil {
		return err
	}
	if len(args) == 1 {
		if h.Mode != "" {
			return errors.New("the mode of the gateway is given twice")
		}
		h.Mode = args[0]
		return nil
	}
	h.HostModes = append(h.HostModes, HostModeConfig{Mode: args[0], Hosts: args[1:]})
	return checkHosts(args[1:])
}

func (h *Handler) addClients(_ *caddyfile.Dispenser, args []string) error {
	h.Clients = append(h.Clients, args...)
	_, err := parseClients(h.Clients)
	return err
}

func (h *Handler) addAgent(d *caddyfile.Dispenser, args []string) error {
	a := AgentConfig{Name: args[0]}
	err := block{
		"token":                 list(&a.Tokens),
		"user_agent":            list(&a.UserAgents),
		"credential":            {min: 2, max: 2, repeat: true, set: a.addCredential},
		"from":                  list(&a.From),
		"client_certificate":    list(&a.ClientCertificates),
		"ignore_wildcard_group": flag(&a.IgnoreWildcardGroup),
		"owner":                 text(&a.Owner),
		"contact":               text(&a.Contact),
		"rate":                  {min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error { return setRate(&a.Rate, args[0]) }},
		"mode":                  choice(&a.Mode, "enforce", "report", "off"),
	}.read(d, "agent "+a.Name)
	h.Agents = append(h.Agents, a)
	return err
}

func (a *AgentConfig) addCredential(_ *caddyfile.Dispenser, args []string) error {
	a.Credentials = append(a.Credentials, Credential{User: args[0], Hash: args[1]})
	return nil
}

func (h *Handler) addConnect(_ *caddyfile.Dispenser, args []string) error {
	rule := ConnectRule{Mode: args[0], Hosts: args[1:]}
	h.Connect = append(h.Connect, rule)
	return rule.check()
}

func (h *Handler) addException(d *caddyfile.Dispenser, args []string) error {
	e := ExceptionConfig{Hosts: args}
	err := block{
		"path":   list(&e.Paths),
		"agent":  list(&e.Agents),
		"until":  text(&e.Until),
		"reason": text(&e.Reason),
	}.read(d, "except")
	h.Exceptions = append(h.Exceptions, e)
	return err
}

func (h *Handler) setEgress(_ *caddyfile.Dispenser, args []string) error {
	if args[0] != "off" {
		return fmt.Errorf("unknown value %q: want off", args[0])
	}
	h.EgressOff = true
	return nil
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*Handler)(nil)
)
