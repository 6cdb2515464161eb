package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/audit"
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
		Short: "Sums up access logs: requests asked, allowed, refused and held, by team, crawler, host and reason",
		Long: `Sums up access logs for those who are responsible for crawlers. The report begins with a statement about the period that
a person can sign, the method and its limits. Then come counts: requests asked, allowed, refused and held,
by team, crawler, host and reason; exceptions and modes other than enforce that applied; sites whose robots.txt was unreachable;
the shortest gaps under each Crawl-delay. The report counts what the lines say; "robots audit" checks that they are true.

Logs are named as for "robots audit". A time is a day (2026-11-23, from its beginning in UTC) or of RFC 3339.

Exit status: 0 everything was read, 2 something could not be read.`,
		Example: `  crawlgate robots report /var/log/crawlgate
  crawlgate robots report --format html --from 2026-11-01 --to 2026-12-01 /var/log/crawlgate > november.html`,
	}, c.run)
	f := cmd.Flags()
	f.StringVar(&c.format, "format", "text", "text, json, csv or html")
	f.StringVar(&c.title, "title", "Crawling report", "title of the HTML page")
	f.BoolVar(&c.json, "json", false, "print JSON, as --format json does")
	f.StringVar(&c.from, "from", "", "requests that ended then or later")
	f.StringVar(&c.to, "to", "", "requests that ended before")
	f.StringVar(&c.filter.Agent, "agent", "", "requests of this crawler only")
	f.StringVar(&c.filter.Host, "host", "", "requests for this host only")
	f.StringVar(&c.filter.Owner, "owner", "", "requests of this team's crawlers only")
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
	r, err := report.Of(ctx, logs, c.filter, func(f audit.Fault) {
		if !f.Torn {
			status = exitError
		}
		s.faults(nil, false)(f)
	})
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
