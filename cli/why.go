package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

type whyOptions struct {
	textFlags
	url, host, agent string
	limit            int
	pattern          enforce.HostPattern
	place            audit.Place // of the requested line
	json             bool
}

func whyCommand() *cobra.Command {
	var c whyOptions
	cmd := command(cobra.Command{
		Use:   "why [--store FILE | --gateway ADDRESS] [--url URL] [--host PATTERN] [--agent NAME] ACCESS_LOG... | why FILE:LINE",
		Short: "Explains lines of access logs: the decision, its rule, and the robots.txt then and now",
		Long: `Explains the newest lines of access logs about a URL, a host or an agent, or one line FILE:LINE:
the decision; the rule in the text of that time, and how the text has changed since; how long the
request was held; the site's preferences, with their fields and tags; and since when its robots.txt
had been unreachable.

Name logs, and the source of the texts, as for audit. The text is the one that decided: the store
has it under the sha256 of the line.

Exit status: 0 there is such a line, 1 there is none, 2 something could not be read, such as a text
that the store does not have.`,
		Example: `  crawlgate robots why --gateway localhost:2019 --url https://example.com/private/x access.log

  $ crawlgate robots why --store robots.db access.log:2
  access.log:2 2026-11-21T12:00:01Z
  request        GET https://example.com/private/x
  decision       denied: Disallowed by robots.txt (disallowed)
  agent          AcmeBot
  identified by  user_agent
  robots.txt     https://example.com/robots.txt (rules)
  rule           line 2, "/private/" of group "*"
  sha256         e01512eba68efa8be205346eafa547e6b87a8eb33a211fd36d36986fd65ec0a4
  Crawl-delay    2s
        1  User-agent: *
  >     2  Disallow: /private/
        3  Crawl-delay: 2
  The text has changed since:
  --- https://example.com/robots.txt 2026-11-21T12:00:01Z e01512eba68efa8be205346eafa547e6b87a8eb33a211fd36d36986fd65ec0a4
  +++ https://example.com/robots.txt 2026-11-22T08:00:00Z ed8e72d310cd265c23159940f9a3483f342bbda8541e0139ea6640aa6eb86790
  @@ -1,3 +1,3 @@
   User-agent: *
  -Disallow: /private/
  +Disallow: /private/more/
   Crawl-delay: 2`,
	}, c.run)
	f := cmd.Flags()
	c.addTo(f)
	f.StringVar(&c.url, "url", "", "only lines about this URL, as written in the log")
	f.StringVar(&c.host, "host", "", "only lines about these hosts: a pattern as in a Caddyfile, such as *.example.com")
	f.StringVar(&c.agent, "agent", "", "only lines about this agent; case does not matter")
	f.IntVar(&c.limit, "limit", 3, "explain at most this many lines")
	f.BoolVar(&c.json, "json", false, "print file, line, time, method, url, the decision in words, the log's object robots and unreachable_since as a JSON object, one per line, without the texts")
	return cmd
}

func (c *whyOptions) run(ctx context.Context, s streams, args []string) (status int, err error) {
	if len(args) == 0 || c.limit < 1 {
		return exitError, misused("want an access log, and a limit above 0")
	}
	if c.host != "" {
		if c.pattern, err = enforce.ParseHostPattern(c.host); err != nil {
			return exitError, fmt.Errorf("--host: %w", err)
		}
	}
	if c.place = placeOf(args[0]); c.place.Line > 0 {
		if len(args) > 1 || c.url+c.host+c.agent != "" {
			return exitError, fmt.Errorf("%s names a line: give it alone", args[0])
		}
		args = []string{c.place.File}
	}
	lines, status, err := c.find(ctx, s, args)
	if err != nil {
		return exitError, err
	}
	if len(lines) == 0 {
		s.complain("there is no such line about a request")
		return max(status, exitNo), nil
	}
	if c.json {
		for _, l := range lines {
			printJSON(s.out, ExplainedLine{l.line.Place, l.line.Time(), l.line.Request.Method, l.line.Request.URI, sentence(l.line), l.line.Robots, l.unreachableSince})
		}
		return status, nil
	}
	source, closeTexts, err := c.open(ctx)
	if err != nil {
		return exitError, err
	}
	defer closeTexts()
	out := bufio.NewWriter(s.out)
	for i, l := range lines {
		if i > 0 {
			printLine(out, "")
		}
		if err := explainLine(ctx, out, source, l.line, l.unreachableSince); err != nil {
			s.complain("%s:%d: %v", l.line.File, l.line.Line, err)
			status = exitError
		}
	}
	return status, out.Flush()
}

// placeOf reads FILE:LINE. The line is 0 if the argument is a whole log.
func placeOf(arg string) audit.Place {
	i := strings.LastIndexByte(arg, ':')
	if _, err := os.Stat(arg); err == nil || i < 0 {
		return audit.Place{}
	}
	n, err := strconv.ParseInt(arg[i+1:], 10, 64)
	if err != nil || n < 1 {
		return audit.Place{}
	}
	return audit.Place{File: arg[:i], Line: n}
}

// whyLine is a line, with the time since when the site's robots.txt had been unreachable by
// the log. The time is zero if the file was reachable, or if that is unknown.
type whyLine struct {
	line             *audit.Line
	unreachableSince time.Time
}

// ExplainedLine is a line as --json prints it. docs/cli.md describes it.
type ExplainedLine struct {
	audit.Place
	Time             time.Time          `json:"time"`
	Method           string             `json:"method"`
	URL              string             `json:"url"`
	Decision         string             `json:"decision"` // in words
	Robots           *enforce.LogRecord `json:"robots"`   // as in the log
	UnreachableSince time.Time          `json:"unreachable_since,omitzero"`
}

// find returns the newest matching lines, newest first.
func (c *whyOptions) find(ctx context.Context, s streams, args []string) (newest []whyLine, status int, err error) {
	logs, err := s.logs(args)
	if err != nil {
		return nil, exitError, err
	}
	err = audit.Read(ctx, logs, func(l *audit.Line) {
		if l.Robots == nil || !c.asked(l) {
			return
		}
		at, _ := slices.BinarySearchFunc(newest, l, func(a whyLine, b *audit.Line) int { return b.Time().Compare(a.line.Time()) })
		newest = slices.Insert(newest, at, whyLine{l, unreachableSince(l)})
		newest = newest[:min(len(newest), c.limit)]
	}, s.unread(&status))
	return newest, status, err
}

func (c *whyOptions) asked(l *audit.Line) bool {
	o, err := origin.Parse(l.Robots.Origin)
	switch {
	case c.place.Line > 0:
		return l.Line == c.place.Line
	case c.url != "" && c.url != l.Request.URI, c.agent != "" && !strings.EqualFold(c.agent, l.Robots.Agent):
		return false
	}
	return c.host == "" || err == nil && c.pattern.Match(o)
}

// explainLine prints the path from a line to the rule, and to today's text.
func explainLine(ctx context.Context, w io.Writer, source texts, l *audit.Line, since time.Time) error {
	r := l.Robots
	printLine(w, fmt.Sprintf("%s:%d %s", l.File, l.Line, moment(l.Time())))
	t := newTable()
	t.fact(map[bool]string{false: "request", true: "tunnel"}[l.Tunnel()], l.Request.Method+" "+l.Request.URI)
	t.fact("decision", sentence(l))
	t.fact("agent", withNote(dashed(r.Agent), strings.Join(slices.DeleteFunc([]string{r.Owner, r.Contact}, func(s string) bool { return s == "" }), ", ")))
	t.fact("identified by", r.IdentifiedBy)
	t.fact("robots.txt", withNote(cmp.Or(r.RobotsURL, "-"), strings.TrimSuffix(r.State+", "+r.Cause, ", ")))
	t.fact("unreachable since", moment(since))
	t.fact("fetched as", r.FetchedAs)
	t.fact("sent as", r.UserAgentSent)
	t.fact("signed by", withNote(r.Signed, r.SignatureForm))
	t.fact("not signed", r.Unsigned)
	if r.Line > 0 {
		t.fact("rule", fmt.Sprintf("line %d, %q of group %q", r.Line, r.Rule, r.Group))
	}
	t.fact("form of the path", string(r.Form))
	t.fact("sha256", r.SHA256)
	t.fact("Crawl-delay", inSeconds(r.CrawlDelay, ""))
	t.fact("held for", inSeconds(float64(r.WaitMillis)/1e3, ""))
	t.fact("preferences", strings.Join(r.Preferences, ", "))
	t.fact("against a purpose", r.Conflict)
	t.fact("signals", strings.Join(r.Signals, ", "))
	for _, said := range r.SignalFields {
		t.fact("said by", said)
	}
	t.print(w)
	if r.SHA256 == "" {
		printLine(w, "No text decided.")
		return nil
	}
	var sha fetch.Sum
	if err := sha.UnmarshalText([]byte(r.SHA256)); err != nil {
		return err
	}
	then, err := source.Body(ctx, sha)
	if err != nil {
		return fmt.Errorf("reading the text of that time: %w", err)
	}
	if err := printAround(w, then, r.Line); err != nil {
		return err
	}
	return printSince(ctx, w, source, l, then, sha)
}

func unreachableSince(l *audit.Line) time.Time {
	for v := range l.Then(l.Robots.FetchedAs) {
		if l.Robots.State == fetch.StateUnreachable.String() && !v.UnreachableSince.IsZero() {
			return v.UnreachableSince
		}
	}
	return time.Time{}
}

func sentence(l *audit.Line) string {
	r := l.Robots
	what := map[string]string{enforce.OutcomeAllow: "allowed", enforce.OutcomeDeny: "denied", enforce.OutcomeError: "failed"}[r.Decision]
	opened := l.Tunnel() && r.Decision == enforce.OutcomeAllow
	if opened {
		what = "opened"
	}
	s := fmt.Sprintf("%s: %s (%s)", cmp.Or(what, r.Decision), r.Reason.Info().Title, r.Reason)
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	if r.Exception != "" {
		s += "; exception " + r.Exception
	}
	switch {
	case r.WouldDeny:
		s += "; it passed under mode report, and mode enforce refuses it"
	case r.Mode != string(enforce.ModeEnforce):
		s += "; mode " + r.Mode
	}
	if opened && !r.PathVisible {
		s += "; the log does not show the requests inside it"
	}
	return s
}

// around is how many lines of a text are shown before and after a rule.
const around = 3

// printAround shows a rule with the lines around it.
func printAround(w io.Writer, text []byte, rule int) error {
	if rule < 1 {
		printLine(w, "No rule of the text matched.")
		return nil
	}
	lines := linediff.Lines(bytes.TrimRight(text, "\r\n"))
	if rule > len(lines) {
		return fmt.Errorf("the text of that time has %d lines, and no line %d", len(lines), rule)
	}
	for n := max(rule-around, 1); n <= min(rule+around, len(lines)); n++ {
		mark := " "
		if n == rule {
			mark = ">"
		}
		printLine(w, strings.TrimRight(fmt.Sprintf("%s %5d  %s", mark, n, lines[n-1]), " "))
	}
	return nil
}

// printSince shows the changes in a text since a log line was written.
func printSince(ctx context.Context, w io.Writer, source texts, l *audit.Line, then []byte, sha fetch.Sum) error {
	o, err := origin.Parse(l.Robots.Origin)
	if err != nil {
		return err
	}
	record, err := source.Load(ctx, fetch.Key{Origin: o, Agent: l.Robots.FetchedAs})
	switch {
	case errors.Is(err, robotscache.ErrNotFound):
		printLine(w, "Nothing is known about today's text.")
		return nil
	case err != nil:
		return fmt.Errorf("reading today's text: %w", err)
	}
	switch now, ok := record.Text(); {
	case !ok:
		printLine(w, fmt.Sprintf("Today there is no text: %s since %s.", withNote(record.State.String(), string(record.Cause)), moment(record.FetchedAt)))
	case now.SHA256 == sha:
		printLine(w, fmt.Sprintf("Today's text is the same, fetched at %s.", moment(now.FetchedAt)))
	default:
		hunks := linediff.Compare(then[:min(len(then), robotstxt.MaxSize)], now.Body[:min(len(now.Body), robotstxt.MaxSize)], around)
		printLine(w, "The text has changed since:")
		old := robotscache.Version{SHA256: sha}
		if at := l.Time(); !at.IsZero() {
			old.FirstSeen = at.Add(-time.Duration(l.Robots.AgeSeconds) * time.Second)
		}
		printDiff(w, adminapi.TextDiff{
			Origin: o.String(), From: old, To: robotscache.Version{SHA256: now.SHA256, FirstSeen: now.FetchedAt}, Hunks: hunks,
		})
	}
	return nil
}
