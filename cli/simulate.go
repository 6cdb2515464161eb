package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/audit/simulate"
)

type simulateOptions struct {
	textFlags
	config, site, redacted string
	json                   bool
}

func simulateCommand() *cobra.Command {
	var c simulateOptions
	cmd := command(cobra.Command{
		Use:   "simulate --config FILE [--store FILE | --gateway ADDRESS] ACCESS_LOG...",
		Short: "Says which requests of access logs another policy would decide differently",
		Long: `Decides the requests of access logs by the policy of a Caddyfile, with the code of a gateway. It
lists the requests that this policy would decide differently:
  FILE:LINE: METHOD URL: AGENT: OLD -> NEW
Then it counts them by reason and by agent. If a log lacks what a decision needs, the line is
listed as not computed: nothing is guessed. docs/simulate.md explains the computation.

Name logs, and the source of the texts, as for audit.

Exit status: 0 every decision is the same, 1 some differ, 2 something could not be read.`,
		Example: `  crawlgate robots simulate --config new.Caddyfile --gateway localhost:2019 /var/log/crawlgate
  crawlgate robots simulate --config Caddyfile --store robots.db --json access.log`,
	}, c.run)
	f := cmd.Flags()
	c.addTo(f)
	f.StringVar(&c.config, "config", "", "the Caddyfile, or a file that ends in .json, whose policy decides")
	f.StringVar(&c.site, "site", "", "the listener whose policy decides, such as :3128, if there are several")
	f.StringVar(&c.redacted, "redacted", "REDACTED", "the mark that the log's filter writes instead of queries or parts of them; empty for no filter")
	f.BoolVar(&c.json, "json", false, "print differences, lines that cannot be computed, errors and totals as JSON objects, one per line")
	return cmd
}

// The objects that --json prints, one per line. docs/audit-json.md is made from the comments.
type (
	// SimulatedLine is a line with a different decision, or one that cannot be computed.
	SimulatedLine struct {
		// Type is "difference" or "not_computed".
		Type string `json:"type"`
		audit.Place
		// Method is the method of the request.
		Method string `json:"method"`
		// URL is the URL of the request.
		URL string `json:"url"`
		// Cause says why the line is "not_computed".
		Cause simulate.Uncomputed `json:"cause,omitempty"`
		// Old is the decision of the log, of a "difference" only.
		Old *simulate.Verdict `json:"old,omitempty"`
		// New is the decision of the policy, of a "difference" only.
		New *simulate.Verdict `json:"new,omitempty"`
	}
	// SimulatedTotals sums up the lines.
	SimulatedTotals struct {
		// Type is "totals".
		Type string `json:"type"`
		simulate.Totals
	}
)

func (c *simulateOptions) run(ctx context.Context, s streams, args []string) (int, error) {
	if c.config == "" {
		return exitError, misused("no --config is given: it names the Caddyfile whose policy decides")
	}
	policy, err := c.policy()
	if err != nil {
		return exitError, fmt.Errorf("--config %s: %w", c.config, err)
	}
	logs, err := s.logs(args)
	if err != nil {
		return exitError, err
	}
	source, closeTexts, err := c.open(ctx)
	if err != nil {
		return exitError, err
	}
	defer closeTexts()
	out := bufio.NewWriter(s.out)
	cfg := simulate.Config{Policy: policy, Texts: source, Redacted: c.redacted}
	totals, err := simulate.Run(ctx, cfg, logs, func(l *audit.Line, r simulate.Result) {
		c.printLine(out, l, r)
	}, s.faults(out, c.json))
	c.printTotals(out, totals)
	err = errors.Join(err, out.Flush())
	switch {
	case err != nil || totals.Errors > 0:
		return exitError, err
	case totals.Different > 0:
		return exitNo, nil
	}
	return exitOK, nil
}

// printLine prints the new decision on a line if it differs from the recorded one.
func (c *simulateOptions) printLine(w io.Writer, l *audit.Line, r simulate.Result) {
	p := SimulatedLine{Type: "not_computed", Place: l.Place, Method: l.Request.Method, URL: l.Request.URI, Cause: r.Cause}
	if r.Cause == "" {
		p.Type, p.Old, p.New = "difference", &r.Old, &r.New
	}
	head := fmt.Sprintf("%s:%d: %s %s: ", l.File, l.Line, p.Method, p.URL)
	switch {
	case c.json:
		printJSON(w, p)
	case r.Cause != "":
		printLine(w, head+"not computed: "+string(r.Cause))
	default:
		agent := dashed(r.Old.Agent)
		if r.New.Agent != r.Old.Agent {
			agent += " -> " + dashed(r.New.Agent)
		}
		printLine(w, fmt.Sprintf("%s%s: %s -> %s", head, agent, r.Old, r.New))
	}
}

func (c *simulateOptions) printTotals(w io.Writer, t simulate.Totals) {
	if c.json {
		printJSON(w, SimulatedTotals{"totals", t})
		return
	}
	sums := newTable()
	sums.row("lines with a decision", t.Lines)
	sums.fact("  about tunnels (CONNECT)", number(t.Tunnels))
	sums.row("  decided as before", t.Same)
	sums.fact("    of these as recorded", number(t.AsRecorded))
	sums.row("  decided otherwise", t.Different)
	for _, cause := range simulate.Causes() {
		sums.fact("  not computed: "+string(cause), number(t.NotComputed[cause]))
	}
	sums.row("errors", t.Errors)
	changes := newTable("OLD", "NEW", "COUNT")
	for _, change := range t.Changes {
		changes.row(change.Old, change.New, change.Lines)
	}
	agents := newTable("AGENT", "DECIDED OTHERWISE")
	for _, name := range slices.Sorted(maps.Keys(t.Agents)) {
		agents.row(dashed(name), t.Agents[name])
	}
	printSections(w, sums, changes, agents)
}

// simulated is the interface through which a gateway's handler shows its policy.
type simulated interface {
	Simulated(app caddy.Module) (simulate.Policy, error)
}

// policy reads the policy of a site from the file.
func (c *simulateOptions) policy() (p simulate.Policy, err error) {
	text, err := os.ReadFile(c.config)
	if err != nil {
		return p, err
	}
	if filepath.Ext(c.config) != ".json" {
		adapter := caddyconfig.GetAdapter("caddyfile")
		if adapter == nil {
			return p, errors.New("this build has no adapter for a Caddyfile")
		}
		if text, _, err = adapter.Adapt(text, map[string]any{"filename": c.config}); err != nil {
			return p, err
		}
	}
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]server `json:"servers"`
			} `json:"http"`
			Robots json.RawMessage `json:"robots"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return p, err
	}
	handler, err := c.handler(config.Apps.HTTP.Servers)
	if err != nil {
		return p, err
	}
	app, err := loadModule("robots", config.Apps.Robots)
	if err != nil {
		return p, err
	}
	module, err := loadModule("http.handlers.robots", handler)
	if err != nil {
		return p, err
	}
	site, ok := module.(simulated)
	if !ok {
		return p, fmt.Errorf("%T does not tell its policy", module)
	}
	return site.Simulated(app)
}

// server is the part of a Caddy server's configuration that contains a gateway.
type server struct {
	Listen []string `json:"listen"`
	Routes any      `json:"routes"`
}

// handler returns the configuration of the selected gateway.
func (c *simulateOptions) handler(servers map[string]server) (json.RawMessage, error) {
	var sites, others []string
	var handler json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		listen := servers[name].Listen
		for _, found := range gatewaysIn(servers[name].Routes) {
			first := append(slices.Clone(listen), name)[0]
			if c.site != "" && c.site != name && !slices.Contains(listen, c.site) {
				others = append(others, first)
				continue
			}
			sites = append(sites, first)
			var err error
			if handler, err = json.Marshal(found); err != nil {
				return nil, err
			}
		}
	}
	if len(sites) == 0 && len(others) > 0 {
		return nil, fmt.Errorf("--site %q: no site with the directive robots has this listener, but %s", c.site, strings.Join(others, ", "))
	}
	if len(sites) != 1 {
		return nil, fmt.Errorf("want one site with the directive robots, and there are %d: %s; --site names one by its listener",
			len(sites), strings.Join(sites, ", "))
	}
	return handler, nil
}

func gatewaysIn(tree any) (handlers []any) {
	switch v := tree.(type) {
	case map[string]any:
		if v["handler"] == "robots" {
			delete(v, "handler")
			return []any{v}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			handlers = append(handlers, gatewaysIn(v[key])...)
		}
	case []any:
		for _, value := range v {
			handlers = append(handlers, gatewaysIn(value)...)
		}
	}
	return handlers
}

// loadModule makes a module from its JSON, without provisioning it.
func loadModule(id string, text json.RawMessage) (caddy.Module, error) {
	info, err := caddy.GetModule(id)
	if err != nil {
		return nil, err
	}
	module := info.New()
	if len(text) > 0 {
		if err := caddy.StrictUnmarshalJSON(text, module); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
	}
	return module, nil
}
