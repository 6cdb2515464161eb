package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/audit/report"
	"github.com/crawlgate/crawlgate/internal/version"
)

type reportOptions struct {
	from, to string
	format   string
	title    string
	json     bool
	filter   report.Filter
}

func reportCommand() *cobra.Command {
	var c reportOptions
	cmd := command(cobra.Command{
		Use:   "report [--format text|json|csv|html] ACCESS_LOG...",
		Short: "Summarizes access logs by team, crawler, host and reason",
		Long: `Summarizes access logs for the people responsible for crawlers. The report begins with a statement
about the period, for a person to sign. Its method and its limits follow, and then tables:

* requests, allowed, refused and held, by team, crawler, host, reason and gateway
* the crawlers of each team, and why its requests were refused or failed
* requests against a preference of the site, by purpose; answers that asked for payment; requests
  that left with a signature
* exceptions, and modes other than enforce
* hosts whose robots.txt was unreachable
* the shortest gap between two requests, for each host with a Crawl-delay, by the times at which
  they were sent; tunnels that reached their site count, requests for robots.txt do not
* how many lines have a seal

The report counts what the lines say, and "robots audit" proves them. The statement says "at most",
because exceptions and mode off do not look at robots.txt, and because the line of a request that
failed in mode report does not say what robots.txt said. It asks for an explanation before anyone
signs if lines could not be read, are missing or have no seal, or if there were tunnels that the
gateway did not look into.

A CONNECT asks for a tunnel and is not a request. Each table counts tunnels separately: opened
("allowed" in JSON), refused, failed, and blind, whose requests are unknown. A request that mode
report let pass counts as allowed, under the reason for which it would have been refused.

` + theLogs + `

Text and HTML show the first 50 rows of a table and sum up the others, and of more than 50 hours
the days. JSON has all rows, and CSV all except the gaps. The first column of CSV says what a row
is: statement, made, version, count, owner, crawler, refusal, agent, reason, host, purpose,
exception, mode, budget, gateway, and others. The HTML page needs no other file and has lines for a
signature. 20,000 names of each kind are counted by name, others together as (others).

Exit status: 0 everything was read, 2 something could not be read; the report has the rest.`,
		Example: `  crawlgate robots report /var/log/crawlgate
  crawlgate robots report --format html --from 2026-11-01 --to 2026-12-01 /var/log/crawlgate > november.html`,
	}, c.run)
	f := cmd.Flags()
	f.StringVar(&c.format, "format", "text", "format of the report: text, json, csv or html")
	f.StringVar(&c.title, "title", "Crawling report", "title of the HTML page")
	f.BoolVar(&c.json, "json", false, "print JSON, as --format json does")
	f.StringVar(&c.from, "from", "", "only requests that ended then or later: a day such as 2026-11-23, from its start in UTC, or an RFC 3339 time")
	f.StringVar(&c.to, "to", "", "only requests that ended before this day or time")
	f.StringVar(&c.filter.Agent, "agent", "", "only requests of this crawler")
	f.StringVar(&c.filter.Host, "host", "", "only requests for this host")
	f.StringVar(&c.filter.Owner, "owner", "", "only requests of this team's crawlers")
	return cmd
}

func (c *reportOptions) run(ctx context.Context, s streams, args []string) (int, error) {
	if c.json {
		c.format = "json"
	}
	print, known := map[string]func(*report.Report, io.Writer) error{
		"text": func(r *report.Report, w io.Writer) error { printReport(r, w); return nil },
		"json": func(r *report.Report, w io.Writer) error { printJSON(w, r); return nil },
		"csv":  (*report.Report).CSV,
		"html": func(r *report.Report, w io.Writer) error { return r.HTML(w, c.title) },
	}[c.format]
	var fromErr, toErr error
	c.filter.From, fromErr = parseMoment(c.from)
	c.filter.To, toErr = parseMoment(c.to)
	switch {
	case !known:
		return exitError, misused(fmt.Sprintf("--format %q: want text, json, csv or html", c.format))
	case fromErr != nil:
		return exitError, fmt.Errorf("--from: %w", fromErr)
	case toErr != nil:
		return exitError, fmt.Errorf("--to: %w", toErr)
	}
	logs, err := s.logs(args)
	if err != nil {
		return exitError, err
	}
	status := exitOK
	r, err := report.Of(ctx, logs, c.filter, s.unread(&status))
	if err != nil {
		return exitError, err
	}
	r.Made, r.Version = time.Now().UTC().Truncate(time.Second), version.Read()
	out := bufio.NewWriter(s.out)
	return status, errors.Join(print(&r, out), out.Flush())
}

// parseMoment reads a day or a time; the empty text is the zero time.
func parseMoment(text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if t, err = time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return t, fmt.Errorf("%q: want a day such as 2026-11-23, or a time such as 2026-11-23T12:00:00Z", text)
}

func printReport(r *report.Report, w io.Writer) {
	for i, part := range r.Parts() {
		if i > 0 {
			printLine(w, "")
			printLine(w, part.Title)
		}
		for _, line := range part.Text {
			printLine(w, line)
		}
	}
	for _, s := range r.Sections() {
		t := newTable()
		for _, row := range append([][]string{s.Heading}, s.Rows...) {
			t.line(row)
		}
		printLine(w, "")
		printLine(w, s.Title)
		t.print(w)
	}
}
