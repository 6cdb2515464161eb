// Package crawlgate is a Caddy module: a forward proxy in front of all crawlers of a company. It
// enforces robots.txt (RFC 9309), keeps one clock per host, and logs each request in a line that an
// auditor can check.
//
// The package itself translates Caddy's configuration for the packages below it. A site's requests
// go through proxy, and engine has everything that sites share. The packages robotstxt, fetch,
// robotscache and enforce decide what robots.txt means, and egress sends the permitted requests.
package crawlgate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	_ "github.com/crawlgate/crawlgate/adminapi" // its module registers itself
	"github.com/crawlgate/crawlgate/audit/simulate"
	_ "github.com/crawlgate/crawlgate/botpage" // its handler registers itself
	"github.com/crawlgate/crawlgate/budget"
	_ "github.com/crawlgate/crawlgate/cli"     // its commands register themselves
	_ "github.com/crawlgate/crawlgate/console" // its handler registers itself
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/block"
	"github.com/crawlgate/crawlgate/internal/passwords"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/proxy"
	"github.com/crawlgate/crawlgate/robotscache"
)

func init() {
	caddy.RegisterModule(new(Handler))
	// The command version names both, even in a binary that xcaddy built. It keeps a name that was
	// set at link time.
	if caddy.CustomVersion == "" {
		caddy.CustomVersion = "Crawlgate " + version.Read() + ", Caddy"
	}
}

// Handler is the gateway of one site: a forward proxy that sends a request only if the robots.txt
// of its target allows that to the crawler. It takes requests in absolute form and CONNECT. A
// request in origin form is for the gateway itself, and gets its page.
//
// The handler answers a refused request itself, with Proxy-Status (RFC 9209) and a body that
// explains the refusal. If the server has error routes (handle_errors), these get the refusal as an
// error with its status.
//
// The access log gets an object "robots" with the decision and its evidence: see
// docs/access-log.md.
type Handler struct {
	enforce.PolicyConfig

	// Clients lists the addresses and ranges of the clients that may use the gateway, or is `any`
	// alone. Others get 403 (`client_not_allowed`), for the pages of the gateway too. Caddy says
	// which address a client has (`trusted_proxies`); a client over a unix socket has 127.0.0.1.
	// Default: loopback, the private ranges of RFC 1918 and RFC 4193, and link-local addresses, but
	// not `100.64.0.0/10`, which carriers and clouds share.
	Clients []string `json:"clients,omitempty"`
	// Agents are your crawlers. Without any, the product token of the User-Agent names the crawler.
	// Two agents that one request could match equally well are an error. Default: none.
	Agents []AgentConfig `json:"agents,omitempty"`
	// Unidentified says what happens to a request that matches no agent: `deny` or `allow`. GET and
	// HEAD of `/robots.txt` are answered in any case, because robots.txt libraries send a
	// User-Agent of their own (with 407 if an agent has credentials). Default: `deny` if there are
	// agents, else `allow`.
	Unidentified string `json:"unidentified,omitempty"`
	// Preferences says what happens to a request if the site does not want a purpose of its agent:
	// `deny` refuses it, `log` lets it pass and logs the conflict. Default: `log`.
	Preferences enforce.PreferenceMode `json:"preferences,omitempty"`
	// Unknown says what a preference that the site does not state means under `preferences: deny`:
	// `allow` or `deny`. Default: `allow`.
	Unknown string `json:"unknown,omitempty"`
	// EgressOff hands allowed requests to the next handler instead of sending them. Default: false.
	EgressOff bool `json:"egress_off,omitempty"`

	known []AgentConfig // other agents that exceptions may name, while a part of a Caddyfile is checked
	site  *proxy.Site
}

// AgentConfig is one of your crawlers. A request is the agent's if it meets all conditions that the
// agent has: user agents, credentials, from, client certificates. Of several values of one
// condition, one has to match. An agent without conditions is recognized by the User-Agent: its
// first token as a product.
type AgentConfig struct {
	enforce.Agent
	// Credentials are proxy credentials of the agent: one of them has to be sent. Default: none are
	// needed.
	Credentials []Credential `json:"credentials,omitempty"`
	// From lists addresses and ranges: its requests come from one of them. Default: any.
	From []string `json:"from,omitempty"`
	// Rate is the agent's own rate at each host, as in `pace.rate`, besides the rate for all
	// crawlers. Default: `off`.
	Rate string `json:"rate,omitempty"`
	// MaxWait is how long a request of this agent is held, in place of the engine's `pace.wait`. 0
	// holds none. Default: `pace.wait`.
	MaxWait *caddy.Duration `json:"max_wait,omitempty"`
	// Ports lists the ports and ranges that the agent may reach, within `egress.ports`. Default:
	// `egress.ports`.
	Ports []string `json:"ports,omitempty"`
	// Unknown replaces `unknown` of the gateway for this agent. Default: the gateway's.
	Unknown string `json:"unknown,omitempty"`
	// Budget is what the agent may take in a day, over all gateways of the fleet. Beyond it,
	// requests get 429 (`budget`). Default: no limit.
	Budget *budget.Config `json:"budget,omitempty"`
}

// Credential is a user name with the hash of its password.
type Credential struct {
	// User is the user name: 1 to 200 bytes without colon and control characters. Required.
	User string `json:"user"`
	// Hash is the bcrypt or argon2id hash of the password, as `crawlgate hash-password` prints it.
	// Required.
	Hash string `json:"hash"`
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.robots", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the configuration and makes the site.
func (h *Handler) Provision(ctx caddy.Context) error {
	config, err := h.policy()
	if err != nil {
		return err
	}
	if config.Source, err = json.Marshal(h); err != nil {
		return err
	}
	config.Logger = ctx.Logger()
	if config.Engine, err = engine.Of(ctx); err != nil {
		return err
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		config.Server = server
	}
	if err := config.Identifier.Follow(ctx, func(agent string, err error) {
		if err != nil {
			config.Logger.Error("the hosts_file cannot be read; the former hosts stay", zap.String("agent", agent), zap.Error(err))
			return
		}
		config.Logger.Info("the hosts_file has changed", zap.String("agent", agent))
	}); err != nil {
		return err
	}
	h.site, err = proxy.New(ctx, config)
	return err
}

// ServeHTTP takes one request through the gateway.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.site.ServeHTTP(w, r, next)
}

// Cleanup releases the resources of the site. Its requests may still run.
func (h *Handler) Cleanup() error {
	if h.site != nil {
		h.site.Close()
	}
	return nil
}

// UnmarshalCaddyfile reads the directive. docs/caddyfile.md has its lines.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fresh := func() *Handler { return &Handler{known: h.Agents} }
	return block.Segment(d, h, fresh, (*Handler).read, (*Handler).policy)
}

func (h *Handler) read(r *block.Reader) error {
	if r.NextArg() {
		if strings.ContainsAny(r.Val()[:min(len(r.Val()), 1)], "/@*") {
			return r.Errf(`directive "robots" takes no matcher, found %q: `+
				`Caddy would answer what it does not match with an empty 200`, r.Val())
		}
		return r.Errf(`directive "robots" takes no argument, found %q`, r.Val())
	}
	return block.Fields(h, map[string]string{"egress_off": ""}, block.Grammar{
		"mode":    {Min: 1, Max: -1, Repeat: true, Set: h.setMode},
		"agent":   {Min: 1, Max: 1, Repeat: true, Block: h.addAgent},
		"connect": {Min: 1, Max: -1, Repeat: true, Set: h.addConnect},
		"except":  {Min: 1, Max: -1, Repeat: true, Block: h.addException},
		"egress":  block.Switch(&h.EgressOff, "off"),
	}).Read(r, "robots")
}

// setMode reads the mode of the gateway or, with patterns, of some hosts.
func (h *Handler) setMode(args []string) error {
	mode := enforce.Mode(args[0])
	if len(args) == 1 {
		if h.Mode != "" {
			return errors.New("the mode of the gateway is given twice")
		}
		h.Mode = mode
		return nil
	}
	h.HostModes = append(h.HostModes, enforce.HostMode{Mode: mode, Hosts: args[1:]})
	return mode.Check()
}

func (h *Handler) addAgent(r *block.Reader, args []string) error {
	a := AgentConfig{Agent: enforce.Agent{Name: args[0]}}
	err := block.Fields(&a, map[string]string{
		"name": "", "windows": "", "tokens": "token", "user_agents": "user_agent", "client_certificates": "client_certificate",
		"purposes": "purpose", "string_hosts": "string",
	}, block.Grammar{
		"credential":            {Min: 2, Max: 2, Repeat: true, Set: a.addCredential},
		"ignore_wildcard_group": block.Flag(&a.IgnoreWildcard),
		"window":                {Min: 1, Max: 2, Repeat: true, Set: a.addWindow},
	}).Read(r, "agent "+a.Name)
	h.Agents = append(h.Agents, a)
	return err
}

func (c *AgentConfig) addCredential(args []string) error {
	c.Credentials = append(c.Credentials, Credential{User: args[0], Hash: args[1]})
	return nil
}

func (c *AgentConfig) addWindow(args []string) error {
	c.Windows = append(c.Windows, strings.Join(args, " "))
	return nil
}

func (h *Handler) addConnect(args []string) error {
	rule := enforce.ConnectRule{Choice: enforce.Connect(args[0]), Hosts: args[1:]}
	h.Connect = append(h.Connect, rule)
	return rule.Choice.Check()
}

func (h *Handler) addException(r *block.Reader, args []string) error {
	e := enforce.Exception{Hosts: args}
	err := block.Fields(&e, map[string]string{"hosts": "", "paths": "path", "agents": "agent"}, nil).Read(r, "except")
	h.Exceptions = append(h.Exceptions, e)
	return err
}

// policy returns the part of a site's policy that depends only on its configuration. It is called
// when a Caddyfile is read, so that a fault is reported with its line, and again when the module is
// provisioned, because the configuration may be JSON.
func (h *Handler) policy() (proxy.Config, error) { return h.policyBy(nil) }

// policyBy is policy with a different check of passwords.
func (h *Handler) policyBy(verify enforce.VerifyFunc) (proxy.Config, error) {
	c := proxy.Config{EgressOff: h.EgressOff}
	var err error
	if c.Clients, err = proxy.ParseClients(h.Clients); err != nil {
		return c, err
	}
	err = cmp.Or(
		enforce.OneOf("unidentified", h.Unidentified, "deny", "allow"),
		enforce.OneOf("unknown", h.Unknown, "allow", "deny"),
		h.Preferences.Check(),
	)
	if err != nil {
		return c, err
	}
	checker := new(passwords.Checker)
	agents, names, err := h.agents(checker)
	if err != nil {
		return c, err
	}
	now := time.Now()
	identifier := enforce.IdentifierConfig{Agents: agents, Verify: verify, Now: now}
	identifier.AllowUnidentified = h.Unidentified == "allow" || h.Unidentified == "" && len(agents) == 0
	if verify == nil {
		identifier.Verify = checker.Verify
	}
	if c.Identifier, c.Warnings, err = enforce.NewIdentifier(identifier); err != nil {
		return c, err
	}
	operator := h.PolicyConfig
	operator.AgentNames, operator.ConnectDefault = names, enforce.ConnectIntercept
	policy, warnings, err := enforce.NewPolicy(operator, now)
	c.Operator, c.Warnings = policy, append(c.Warnings, warnings...)
	return c, err
}

// Simulated returns the policy of the site for requests from logs, without a provisioned app. Logs
// have no passwords, so each password counts as right.
func (h *Handler) Simulated(app caddy.Module) (p simulate.Policy, err error) {
	c, err := h.policyBy(simulate.AnyPassword)
	if err != nil {
		return p, err
	}
	read, done := context.WithCancel(context.Background())
	done() // read the files of hosts only once
	if err := c.Identifier.Follow(read, nil); err != nil {
		return p, err
	}
	a, ok := app.(*App)
	if !ok {
		return p, fmt.Errorf("%T is not the app robots", app)
	}
	e, err := a.settings()
	reading := robotscache.Interpretation{Policy: e.Cache.Policy, IndexHTML: e.Cache.IndexHTML}
	return simulate.Policy{
		Clients: c.Clients, Identifier: c.Identifier, Operator: c.Operator, Politeness: e.Politeness, Interpretation: reading, AllowFor: e.AllowFor,
		Signals: e.Signals,
	}, err
}

func (h *Handler) agents(checker *passwords.Checker) (agents []enforce.Agent, names []string, err error) {
	for _, c := range h.Agents {
		a, err := c.agent(checker)
		if err != nil {
			return nil, nil, fmt.Errorf("agent %q: %w", c.Name, err)
		}
		a.Preferences = cmp.Or(c.Preferences, h.Preferences, enforce.PreferencesLog)
		a.DenyUnknown = cmp.Or(c.Unknown, h.Unknown) == "deny"
		if h.EgressOff && a.HasBudget() && a.Budget.Bytes > 0 {
			return nil, nil, fmt.Errorf("agent %q: budget: bytes: with egress off, other handlers send the bytes, and none are counted", c.Name)
		}
		agents, names = append(agents, a), append(names, c.Name)
	}
	for _, c := range h.known {
		names = append(names, c.Name)
	}
	return agents, names, nil
}

func (c *AgentConfig) agent(checker *passwords.Checker) (a enforce.Agent, err error) {
	a = c.Agent
	a.MaxWait = (*time.Duration)(c.MaxWait)
	if a.From, err = guard.ParsePrefixes("from", c.From); err != nil {
		return a, err
	}
	if a.Interval, err = pace.ParseRate(cmp.Or(c.Rate, "off")); err != nil {
		return a, err
	}
	for _, text := range c.Ports {
		r, err := guard.ParsePortRange(text)
		if err != nil {
			return a, fmt.Errorf("ports: %w", err)
		}
		a.Ports = append(a.Ports, [2]uint16{r.First, r.Last})
	}
	if c.Budget != nil {
		if a.Budget, err = c.Budget.Allowance(); err != nil {
			return a, err
		}
	}
	for _, credential := range c.Credentials {
		if err := checker.Add(credential.User, credential.Hash); err != nil {
			return a, fmt.Errorf("credential of %q: %w", credential.User, err)
		}
		a.Credentials = append(a.Credentials, credential.User)
	}
	return a, enforce.OneOf("unknown", c.Unknown, "allow", "deny")
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
