package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// auditOptions are the flags of the command that replays access logs.
type auditOptions struct {
	audit.Config
	store   string
	gateway string
	json    bool
}

func auditCommand() *cobra.Command {
	var c auditOptions
	cmd := command(cobra.Command{
		Use:   "audit [--store FILE | --gateway ADDRESS] ACCESS_LOG...",
		Short: "Replays access logs against the stored robots.txt texts, and says which lines do not follow from them",
		Long: `Replays access logs against the stored robots.txt texts, and says which lines do not follow from them, each as
  FILE:LINE: KIND: MESSAGE: AGENT URL
and then what the logs hold for each agent. docs/audit.md says what each kind means and what a log cannot prove.

A log is a file, also one that was rotated or packed (gzip, zstd); - is standard input. Of a folder or a quoted pattern
the logs are taken in the order of time.

The texts come from a store that no gateway has open or, with --gateway, from a running gateway.

Exit status: 0 there is nothing to find, 1 there are findings, 2 something could not be read.`,
		Example: `  crawlgate robots audit --gateway localhost:2019 /var/log/crawlgate
  crawlgate robots audit --store robots.db --json access.log access-2026-05-01T10-30-00.000-size.log.gz`,
	}, c.run)
	f := cmd.Flags()
	f.StringVar(&c.store, "store", "", "file of the store; default: the one of a gateway with default settings")
	f.StringVar(&c.gateway, "gateway", "", "ask a running gateway at its admin endpoint: host:port, unix//path or a URL")
	f.StringSliceVar(&c.OwnGroupOnly, "ignore-wildcard-group", nil, "agents whose block says ignore_wildcard_group")
	f.BoolVar(&c.IndexHTML, "index-html", false, "read the texts as a gateway with index_html on does")
	f.StringVar(&c.Redacted, "redacted", "REDACTED", "what the log's filter writes in place of queries or parts of them")
	f.DurationVar(&c.MinDelay, "crawl-delay-min", 0, "the operator's least Crawl-delay")
	f.DurationVar(&c.MaxDelay, "crawl-delay-max", enforce.DefaultMaxCrawlDelay, "the operator's longest Crawl-delay, 0 for none")
	f.DurationVar(&c.Tolerance, "tolerance", 100*time.Millisecond, "by how much a gap may fall short of the Crawl-delay")
	f.BoolVar(&c.json, "json", false, "print findings, errors and totals as JSON objects, one a line")
	return cmd
}

func (c *auditOptions) run(ctx context.Context, s streams, args []string) (int, error) {
	switch {
	case len(args) == 0:
		return exitError, errors.New("no access log is given")
	case c.store != "" && c.gateway != "":
		return exitError, errors.New("--store and --gateway exclude each other")
	case c.MinDelay < 0 || c.MaxDelay < 0 || c.Tolerance < 0:
		return exitError, errors.New("no time may be below 0")
	}
	logs, err := audit.Files(args, s.in)
	if err != nil {
		return exitError, err
	}
	texts, closeTexts, err := c.texts(ctx)
	if err != nil {
		return exitError, err
	}
	defer closeTexts()
	c.Texts = texts
	out := bufio.NewWriter(s.out)
	totals, err := audit.Run(ctx, c.Config, logs, c.report(s, out))
	if err == nil {
		err = errors.Join(c.print(out, totals), out.Flush())
	}
	switch {
	case err != nil:
		return exitError, err
	case totals.Errors > 0:
		return exitError, nil
	case len(totals.Findings) > 0:
		return exitNo, nil
	}
	return exitOK, nil
}

// texts opens the source of the texts, which the caller closes.
func (c *auditOptions) texts(ctx context.Context) (texts audit.Texts, closeTexts func(), err error) {
	if c.gateway != "" {
		client, err := newAdminClient(c.gateway)
		if err != nil {
			return nil, nil, fmt.Errorf("--gateway: %w", err)
		}
		// An unreachable gateway is reported once, not for each text.
		_, err = client.do(ctx, get("origins", url.Values{"limit": {"1"}}))
		return gatewayTexts{client}, func() {}, err
	}
	path := c.store
	if path == "" {
		path = filepath.Join(caddy.AppDataDir(), "crawlgate", "robots.db")
	}
	reader, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true})
	switch {
	case errors.Is(err, boltstore.ErrLocked):
		return nil, nil, fmt.Errorf("%w; if that is a gateway, name its admin endpoint: --gateway %s", err, caddy.DefaultAdminListen)
	case err != nil:
		return nil, nil, err
	}
	return reader, func() { _ = reader.Close() }, nil // it was only read
}

// gatewayTexts asks a running gateway for texts.
type gatewayTexts struct{ client *adminClient }

// Body implements audit.Texts.
func (g gatewayTexts) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	body, err := g.client.do(ctx, get("body", url.Values{"sha256": {hex.EncodeToString(sha[:])}}))
	if fault, ok := errors.AsType[caddy.APIError](err); ok && fault.HTTPStatus == http.StatusNotFound {
		return nil, fmt.Errorf("%w: %w", robotscache.ErrNotFound, err)
	}
	return body, err
}

// The objects that --json prints, one a line. docs/audit.md describes them.
type (
	// AuditFinding is a line that does not follow from the texts.
	AuditFinding struct {
		Type string `json:"type"` // "finding"
		audit.Finding
	}
	// AuditError is a line or file that cannot be read.
	AuditError struct {
		Type string `json:"type"` // "error"
		audit.Place
		Error string `json:"error"`
	}
	// AuditTotals sums up the logs.
	AuditTotals struct {
		Type string `json:"type"` // "totals"
		audit.Totals
	}
)

// report prints findings and faults as they come.
func (c *auditOptions) report(s streams, out *bufio.Writer) audit.Report {
	r := audit.Report{
		Finding: func(f audit.Finding) error {
			if c.json {
				return printJSON(out, AuditFinding{"finding", f})
			}
			return printLine(out, fmt.Sprintf("%s:%d: %s: %s: %s %s", f.File, f.Line, f.Kind, f.Message, dashed(f.Agent), f.URL))
		},
		Fault: func(f audit.Fault) error {
			if f.Line > 0 {
				s.complain("%s:%d: %v", f.File, f.Line, f.Err)
			} else {
				s.complain("%s: %v", f.File, f.Err)
			}
			if c.json {
				return printJSON(out, AuditError{"error", f.Place, f.Err.Error()})
			}
			return nil
		},
	}
	if isTerminal(s.err) {
		now := rate.Sometimes{Interval: 500 * time.Millisecond}
		r.Progress = func(lines int64) {
			// The next line of output overwrites it. It is no part of the answer, so its error is ignored.
			now.Do(func() { _, _ = fmt.Fprintf(s.err, "%d lines\r", lines) })
		}
	}
	return r
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// print writes the totals.
func (c *auditOptions) print(w io.Writer, t audit.Totals) error {
	if c.json {
		return printJSON(w, AuditTotals{"totals", t})
	}
	for i, section := range []*table{auditSummary(t), auditAgents(t), auditReasons(t), auditTexts(t)} {
		if section.rows < 2 && i > 0 {
			continue
		}
		if err := errors.Join(printRaw(w, []byte("\n")), section.print(w)); err != nil {
			return err
		}
	}
	return nil
}

// auditSummary is about the logs as a whole.
func auditSummary(t audit.Totals) *table {
	s := newTable()
	s.fact("from", moment(t.First))
	s.fact("to", moment(t.Last))
	s.row("files", t.Files)
	s.row("lines", t.Lines)
	s.fact("  unreadable", number(t.Unreadable))
	s.fact("  not ours", number(t.Foreign))
	s.fact("    of these, requests through a proxy", number(t.Unjudged))
	s.row("  checked", t.Checked)
	s.row("    replayed from a text", t.Replayed)
	s.row("    following from the state", t.ByState)
	s.row("    as recorded", t.AsRecorded)
	for _, cause := range audit.Causes() {
		s.fact("    not provable: "+string(cause), number(t.NotProvable[cause]))
	}
	g := t.Gaps
	s.row("gaps under a Crawl-delay", g.Pairs)
	s.row("  kept", g.Kept)
	s.row("  too short", g.Short)
	s.row("  undecided", g.Undecided)
	s.fact("  not compared: late lines", number(g.Late))
	s.fact("  not compared: lines without times", number(g.Untimed))
	s.fact("requests under a Crawl-delay that was cut", number(g.Clamped))
	s.row("errors", t.Errors)
	s.row("findings", sumOf(t.Findings))
	for _, kind := range audit.Kinds() {
		s.fact("  "+string(kind), number(t.Findings[kind]))
	}
	s.fact("not in full: lines of further agents", number(t.Caps.Agents))
	s.fact("not in full: uses of further exceptions", number(t.Caps.Exceptions))
	s.fact("not in full: lines of further missing texts", number(t.Caps.Texts))
	s.fact("not in full: hosts whose last requests were forgotten", number(t.Caps.Hosts))
	return s
}

// auditAgents has a row an agent.
func auditAgents(t audit.Totals) *table {
	headings := []any{"AGENT", "CHECKED", "ALLOWED", "DENIED", "FAILED", "WOULD DENY", "EXCEPTIONS", "FINDINGS"}
	owned := slices.ContainsFunc(t.Agents, func(a audit.AgentTotals) bool { return a.Owner+a.Contact != "" })
	if owned {
		headings = append(headings, "OWNER", "CONTACT")
	}
	s := newTable(headings...)
	for _, a := range t.Agents {
		cells := []any{
			dashed(a.Agent), a.Checked, a.Allowed, sumOf(a.Denied), sumOf(a.Failed),
			sumOf(a.WouldDeny), sumOf(a.Exceptions), a.Findings,
		}
		if owned {
			cells = append(cells, dashed(a.Owner), dashed(a.Contact))
		}
		s.row(cells...)
	}
	return s
}

// auditReasons counts, by agent, the reasons of refusals and the exceptions used.
func auditReasons(t audit.Totals) *table {
	s := newTable("AGENT", "WHAT", "WHY", "COUNT")
	for _, a := range t.Agents {
		addCounts(s, a.Agent, "denied", a.Denied)
		addCounts(s, a.Agent, "failed", a.Failed)
		addCounts(s, a.Agent, "would deny", a.WouldDeny)
		addCounts(s, a.Agent, "unreachable", a.Unreachable)
		addCounts(s, a.Agent, "exception", a.Exceptions)
	}
	return s
}

func addCounts[K ~string](s *table, agent, what string, counts map[K]int64) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		s.row(dashed(agent), what, key, counts[key])
	}
}

// shownTexts is how many texts the table has; --json has all.
const shownTexts = 20

// auditTexts lists texts that were not to be had.
func auditTexts(t audit.Totals) *table {
	s := newTable("TEXT", "WHY", "LINES", "ORIGIN", "FIRST")
	for i, x := range t.Texts {
		if i == shownTexts {
			s.row(fmt.Sprintf("and %d more: see --json", len(t.Texts)-i))
			break
		}
		s.row(x.SHA256, x.Cause, x.Lines, x.Origin, fmt.Sprintf("%s:%d", x.First.File, x.First.Line))
	}
	return s
}

func sumOf[K comparable](counts map[K]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// dashed is the name of an agent, - for one without.
func dashed(agent string) string { return cmp.Or(agent, "-") }
