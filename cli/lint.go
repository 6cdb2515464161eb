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

func lintCommand() *cobra.Command {
	var c lintOptions
	cmd := command(cobra.Command{
		Use:   "lint [--json] FILE|URL",
		Short: "Says which lines of a robots.txt are ignored, repaired or surprising",
		Long: `Says which lines of a robots.txt are ignored or repaired, or do something else than their author may think, each as
  FILE:LINE: CODE: MESSAGE

It takes a file, - for standard input, or the URL of a site, whose robots.txt is fetched. Where there are no warnings,
the standard error stream says so, but not with --json.

Exit status: 0 there is nothing to say, 1 there are warnings, 2 it could not be read.`,
		Example: "  crawlgate robots lint robots.txt\n  crawlgate robots lint https://example.com/robots.txt",
	}, c.run)
	f := cmd.Flags()
	f.StringSliceVar(&c.allowPrivate, "allow-private", nil, "address ranges (CIDR) that are not public and may be fetched from")
	f.BoolVar(&c.json, "json", false, "print each warning as a JSON object, one a line")
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
