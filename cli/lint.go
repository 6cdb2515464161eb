package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

type lintOptions struct {
	allowPrivate []string
	json         bool
}

// The help of lint.
const (
	lintLong = `Reports lines of a robots.txt that are ignored or repaired, or that mean something else than their
author may think:
  FILE:LINE: CODE: MESSAGE

Name a file, - for standard input, or the URL of a site, whose robots.txt is fetched. If there are
no warnings, the standard error stream says so, but not with --json.

The codes:
  utf-16, too-large, no-directive, unknown-field, unsupported-field
      it is not read; if an unknown field resembles another name, the message suggests that name
  rule-outside-group, delay-outside-group
      no user-agent line precedes it
  path-without-slash, empty-name, bad-name, bad-sitemap, bad-delay (also of Request-rate and
  Visit-time)
      the value is not valid: it is ignored
  duplicate-rule, shadowed-rule
      another rule always decides
  byte-order-mark, html, long-line, nul, invalid-utf-8
      the text is damaged or of another kind, and is read as far as possible
  missing-colon, misspelt-field
      it is forgiven
  odd-name, several-names
      only a part of the name counts: "FooBot, BarBot" names FooBot alone
  shared-group
      something other than a rule is between two user-agent lines: both crawlers share all rules
  two-directives, dollar-inside, encoded-path, broken-escape
      a part of the value is taken literally
  comment-inside
      a # begins a comment: "Disallow: /#/x" is "Disallow: /"
  group-without-rules
      the crawlers may fetch everything, and no earlier group names them
  status-202
      the site answered 202 (Accepted), perhaps before the real file exists
  too-many-warnings
      there are more than 1,000

docs/signals-grammar.md#mistakes has the codes of Content-Usage, Content-Signal and License lines.

Field names must be exact (RFC 9309, section 2.2), in any case. These mistakes are accepted:
useragent, user agent, site-map, dissallow, dissalow, disalow, diasllow, disallaw, an s or ed after
these and after the right names, invisible characters, crawldelay and crawl delay. Google's parser
also accepts every name that begins like this: for it, "DisallowAITraining: /" closes a site and
"AllowAITraining: /" opens one. Here such a line is another record (section 2.2.4): it is no rule,
and it does not end a list of names.

Quotations from the text are in ASCII. Control characters, and characters that look like ASCII,
are shown with escapes. A whole word of Cyrillic or Greek letters is shown as it is.

Exit status: 0 there are no warnings, 1 there are warnings, 2 the file could not be read.`

	lintExample = `  crawlgate robots lint robots.txt
  crawlgate robots lint https://example.com/robots.txt`
)

func lintCommand() *cobra.Command {
	var c lintOptions
	cmd := command(cobra.Command{
		Use:   "lint [--json] FILE|URL",
		Short: "Says which lines of a robots.txt are ignored, repaired or surprising",
		Long:  lintLong, Example: lintExample,
	}, c.run)
	f := cmd.Flags()
	f.StringSliceVar(&c.allowPrivate, "allow-private", nil, "address ranges that are not public and may be fetched from, such as 10.0.0.0/8; may be repeated")
	f.BoolVar(&c.json, "json", false, "print file, line, code and message of each warning as a JSON object, one per line")
	return cmd
}

// LintWarning is a warning as --json prints it.
type LintWarning struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (c *lintOptions) run(ctx context.Context, s streams, args []string) (int, error) {
	if len(args) != 1 {
		return exitError, misused("want one file or URL")
	}
	text, warnings, err := c.read(ctx, s, args[0])
	if err != nil {
		return exitError, err
	}
	status := exitOK
	for _, w := range append(warnings, lint(text)...) {
		status = exitNo
		if c.json {
			printJSON(s.out, LintWarning{args[0], w.Line, w.Code, w.Message})
		} else {
			printLine(s.out, fmt.Sprintf("%s:%d: %s: %s", args[0], w.Line, w.Code, w.Message))
		}
	}
	switch {
	case c.json || s.out.err != nil:
	case status == exitOK:
		s.complain("%s: no warnings", args[0])
	default:
		s.complain("exit status %d: there are warnings", exitNo)
	}
	return status, nil
}

// lint returns the warnings about a text, also about the values of its preference lines, in the
// order of the lines.
func lint(text []byte) []robotstxt.Warning {
	warnings := append(robotstxt.Lint(text), preferences.Lint(text)...)
	slices.SortStableFunc(warnings, func(a, b robotstxt.Warning) int { return cmp.Compare(a.Line, b.Line) })
	return warnings
}

// read returns the text, and the warnings about the answer that contained it.
func (c *lintOptions) read(ctx context.Context, s streams, name string) ([]byte, []robotstxt.Warning, error) {
	if !strings.Contains(name, "://") {
		if len(c.allowPrivate) > 0 {
			return nil, nil, misused("--allow-private goes with a URL")
		}
		text, err := readRobots(name, s.in)
		return text, nil, err
	}
	o, err := adminapi.ParseOrigin(name)
	if err != nil {
		return nil, nil, err
	}
	l, err := liveRules(c.allowPrivate, false)
	if err != nil {
		return nil, nil, err
	}
	entry, _, err := l.Lookup(ctx, o, robotscache.Asker{})
	if err != nil {
		return nil, nil, fmt.Errorf("fetching %s: %w", o.RobotsURL(), err)
	}
	if came := l.came(fetch.Key{Origin: o}); came != "" {
		return nil, nil, errors.New(came)
	}
	var warnings []robotstxt.Warning
	if slices.Contains(engine.FlagsOf(entry.Record()), engine.Flag202) {
		warnings = append(warnings, robotstxt.Warning{Line: 1, Code: "status-202", Message: flagTexts[engine.Flag202]})
	}
	return entry.Record().Body, warnings, nil
}
