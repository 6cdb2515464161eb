package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
)

// originsCommand lists what is known.
type originsCommand struct {
	remote
	state string
	after string
	limit int
}

func (*originsCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "origins [--state rules|absent|unreachable] [--after ORIGIN] [--limit N]",
		Short: "Lists the origins whose robots.txt a gateway knows",
		Long:  "Lists the origins whose robots.txt the gateway knows, in the order of their URLs, with its state.",
	}
}

func (c *originsCommand) flags(f *pflag.FlagSet) {
	c.remote.flags(f)
	f.StringVar(&c.state, "state", "", "only those in this state: rules, absent or unreachable")
	f.StringVar(&c.after, "after", "", "begin behind this origin")
	f.IntVar(&c.limit, "limit", 0, "end after so many, 0 for no end")
}

func (c *originsCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	if len(args) > 0 || c.limit < 0 {
		return exitError, errors.New("it takes no argument, and no limit below 0")
	}
	client, err := newAdminClient(c.address)
	if err != nil {
		return exitError, err
	}
	left, headings := c.limit, true
	for {
		page, err := c.page(ctx, client, left)
		if err != nil {
			return exitError, err
		}
		if err := c.print(s.out, page, headings); err != nil {
			return exitError, err
		}
		headings = headings && len(page.Origins) == 0
		left -= len(page.Origins)
		if c.after = page.Next; c.after == "" || c.limit > 0 && left == 0 {
			return exitOK, nil
		}
	}
}

func (c *originsCommand) page(ctx context.Context, client *adminClient, left int) (page adminapi.OriginList, err error) {
	size := adminapi.MaxPage
	if c.limit > 0 {
		size = min(size, left)
	}
	return listOrigins(ctx, client, url.Values{"limit": {strconv.Itoa(size)}, "after": {c.after}, "state": {c.state}})
}

func listOrigins(ctx context.Context, client *adminClient, query url.Values) (page adminapi.OriginList, err error) {
	data, err := client.do(ctx, adminRequest{method: http.MethodGet, path: "origins", query: query})
	if err != nil {
		return page, err
	}
	return decode[adminapi.OriginList](data)
}

// print writes a page. Pages have columns of their own width.
func (c *originsCommand) print(w io.Writer, page adminapi.OriginList, headings bool) error {
	t := newTable()
	if headings && len(page.Origins) > 0 {
		t.row("ORIGIN", "STATE", "STATUS", "FETCHED", "FRESH UNTIL", "UNREACHABLE SINCE", "NEXT ATTEMPT")
	}
	for _, o := range page.Origins {
		if c.json {
			if err := printJSON(w, o); err != nil {
				return err
			}
			continue
		}
		t.row(o.Origin, withNote(o.State, o.Cause), number(o.Status), moment(o.FetchedAt), moment(o.FreshUntil),
			moment(o.UnreachableSince), moment(o.NextAttempt))
	}
	if c.json {
		return nil
	}
	return t.print(w)
}

// showCommand shows one origin.
type showCommand struct {
	remote
	diff bool
}

func (*showCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "show [--diff] ORIGIN",
		Short: "Shows the record and the history of an origin, or what changed in its robots.txt",
		Long: `Shows what the gateway knows of the robots.txt of an origin: the record, what it means for crawling now, and its history,
the newest version first. With --diff it shows what changed from the version before the last one to the last.

A host without a scheme stands for the one origin of it that is known, at whatever scheme and port.`,
		Example: "  crawlgate robots show example.com\n  crawlgate robots show --diff http://example.com:8080",
	}
}

func (c *showCommand) flags(f *pflag.FlagSet) {
	c.remote.flags(f)
	f.BoolVar(&c.diff, "diff", false, "show the lines that changed between the last two versions")
}

func (c *showCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	if len(args) != 1 {
		return exitError, errors.New("want one origin")
	}
	client, err := newAdminClient(c.address)
	if err != nil {
		return exitError, err
	}
	site, err := knownOrigin(ctx, client, args[0])
	if err != nil {
		return exitError, err
	}
	query := url.Values{"origin": {site}}
	if c.diff {
		q := adminRequest{method: http.MethodGet, path: "diff", query: query}
		return ask(ctx, &c.remote, s, q, func(d adminapi.TextDiff) error { return printDiff(s.out, d) })
	}
	q := adminRequest{method: http.MethodGet, path: "origin", query: query}
	return ask(ctx, &c.remote, s, q, func(d adminapi.OriginDetail) error { return printOrigin(s.out, d) })
}

// maxNamed bounds the origins that a question names.
const maxNamed = 20

// knownOrigin returns the one origin that a gateway knows of a host, or the argument itself where
// it has a scheme.
func knownOrigin(ctx context.Context, client *adminClient, arg string) (string, error) {
	if strings.Contains(arg, "://") {
		return arg, nil
	}
	page, err := listOrigins(ctx, client, url.Values{"host": {arg}, "limit": {strconv.Itoa(maxNamed)}})
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(page.Origins))
	for _, o := range page.Origins {
		names = append(names, o.Origin)
	}
	if page.Next != "" {
		names = append(names, "…")
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("nothing is known of %s: no request has asked for it", arg)
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("say which one is meant: %s", strings.Join(names, ", "))
}

// flagTexts are the flags of a text in words.
var flagTexts = map[string]string{
	adminapi.FlagHTML: "the text is an HTML page: what parses of it decides",
	adminapi.Flag202:  "the answer was 202 (Accepted): the text may stand for one that is still being made",
}

func printOrigin(w io.Writer, d adminapi.OriginDetail) error {
	t, r := newTable(), d.Record
	t.fact("origin", r.Origin)
	t.fact("robots.txt", r.RobotsURL)
	t.fact("state", withNote(r.State, r.Cause))
	t.fact("access", d.View.Access)
	t.fact("status", number(r.Status))
	t.fact("detail", r.Detail)
	t.fact("by way of", strings.Join(r.Hops, ", "))
	t.fact("sha256", r.SHA256)
	if r.Truncated {
		t.fact("truncated", "the file goes on")
	}
	for _, flag := range r.Flags {
		t.fact("flag", cmp.Or(flagTexts[flag], flag))
	}
	for i, u := range r.Sitemaps {
		if i == maxNamed {
			t.fact("sitemap", fmt.Sprintf("and %d more: see --json", len(r.Sitemaps)-i))
			break
		}
		t.fact("sitemap", u)
	}
	t.fact("fetched", moment(r.FetchedAt))
	t.fact("fresh until", moment(r.FreshUntil))
	t.fact("unreachable since", moment(r.UnreachableSince))
	t.fact("attempts", number(r.Attempts))
	if f := r.LastFailure; f != nil {
		t.fact("last failure", strings.TrimSpace(moment(f.At)+" "+f.Cause+" "+number(f.Status)+" "+f.Detail))
	}
	t.fact("next attempt", moment(r.NextAttempt))
	if g := r.LastGood; g != nil {
		t.fact("last good", moment(g.FetchedAt)+" "+g.SHA256)
	}
	if err := t.print(w); err != nil || len(d.History) == 0 {
		return err
	}
	h := newTable("FIRST SEEN", "LAST SEEN", "STATE", "STATUS", "SIZE", "SHA256")
	for _, v := range d.History {
		h.row(moment(v.FirstSeen), moment(v.LastSeen), withNote(v.State, v.Cause), number(v.Status), number(v.Size), v.SHA256)
	}
	if err := printRaw(w, []byte("\n")); err != nil {
		return err
	}
	return h.print(w)
}

// printDiff writes a unified diff.
func printDiff(w io.Writer, d adminapi.TextDiff) error {
	lines := []string{
		fmt.Sprintf("--- %s/robots.txt %s %s", d.Origin, moment(d.From.FirstSeen), d.From.SHA256),
		fmt.Sprintf("+++ %s/robots.txt %s %s", d.Origin, moment(d.To.FirstSeen), d.To.SHA256),
	}
	for _, h := range d.Hunks {
		lines = append(lines, fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.FromLine, h.FromCount, h.ToLine, h.ToCount))
		lines = append(lines, h.Lines...)
	}
	for _, line := range lines {
		if err := printLine(w, line); err != nil {
			return err
		}
	}
	return nil
}

// purgeCommand forgets origins.
type purgeCommand struct{ remote }

func (*purgeCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "purge ORIGIN...",
		Short: "Forgets what a gateway knows of origins",
		Long: `Forgets the record and the history of each origin. The next request for it fetches its robots.txt again.

An origin without a scheme is taken for https.`,
	}
}

func (c *purgeCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	return askEach(ctx, &c.remote, s, args, aboutOrigin("purge"), func(p adminapi.Purged) error {
		what := "purged"
		if !p.Known {
			what = "was not known"
		}
		return printLine(s.out, p.Origin+" "+what)
	})
}

// aboutOrigin makes the requests of a command that takes origins.
func aboutOrigin(path string) func(arg string) adminRequest {
	return func(arg string) adminRequest {
		return adminRequest{method: http.MethodPost, path: path, body: adminapi.OriginRequest{Origin: originArgument(arg)}}
	}
}

// refreshCommand fetches the robots.txt of origins.
type refreshCommand struct{ remote }

func (*refreshCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "refresh ORIGIN...",
		Short: "Has a gateway fetch the robots.txt of origins, however fresh it is",
		Long: `Has the gateway fetch the robots.txt of each origin, however fresh what it knows is, and shows what it knows then.

An origin without a scheme is taken for https.`,
	}
}

func (c *refreshCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	return askEach(ctx, &c.remote, s, args, aboutOrigin("refresh"), func(d adminapi.OriginDetail) error {
		r := d.Record
		line := r.Origin + " " + withNote(r.State, r.Cause)
		if f := r.LastFailure; f != nil {
			line += "; the fetch failed: " + strings.TrimSpace(f.Cause+" "+number(f.Status)+" "+f.Detail)
		}
		return printLine(s.out, line)
	})
}
