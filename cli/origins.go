package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
)

func originsCommand() *cobra.Command {
	var state, after string
	var limit int
	cmd := remoteCommand(cobra.Command{
		Use:   "origins [--state rules|absent|unreachable] [--after ORIGIN] [--limit N]",
		Short: "Lists the origins whose robots.txt a gateway knows",
		Long: `Lists the origins whose robots.txt the gateway knows, in the order of their URLs, with its state.
For an unreachable one it says since when, and when the next attempt is due.`,
		Example: `  crawlgate robots origins
  crawlgate robots origins --state unreachable --limit 20`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) > 0 || limit < 0 {
			return exitError, misused("want no argument, and a limit of at least 0")
		}
		headings := !r.json
		return exitOK, eachPage(ctx, r, url.Values{"after": {after}, "state": {state}}, cmp.Or(limit, math.MaxInt), func(page []adminapi.OriginInfo) error {
			printOrigins(r, page, headings)
			headings = headings && len(page) == 0 // a page of many that the state leaves out
			return nil
		})
	})
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only those in this state: rules, absent or unreachable")
	f.StringVar(&after, "after", "", "begin after this origin")
	f.IntVar(&limit, "limit", 0, "list at most this many, 0 for all")
	return cmd
}

// eachPage calls show with pages of the known origins, until all are shown, or as many as limit.
func eachPage(ctx context.Context, r remote, query url.Values, limit int, show func(page []adminapi.OriginInfo) error) error {
	for listed := 0; ; {
		query.Set("limit", strconv.Itoa(min(adminapi.MaxPage, limit-listed)))
		page, err := call[adminapi.OriginList](ctx, r.adminClient, get("origins", query))
		if err == nil {
			err = show(page.Origins)
		}
		if err != nil {
			return err
		}
		listed += len(page.Origins)
		if query["after"] = []string{page.Next}; page.Next == "" || listed == limit {
			return nil
		}
	}
}

// printOrigins writes a page. Each page has its own column widths.
func printOrigins(r remote, page []adminapi.OriginInfo, headings bool) {
	t := newTable()
	if headings && len(page) > 0 {
		t.row("ORIGIN", "STATE", "STATUS", "FETCHED", "FRESH UNTIL", "UNREACHABLE SINCE", "NEXT ATTEMPT")
	}
	for _, o := range page {
		if r.json {
			printJSON(r.out, o)
			continue
		}
		t.row(o.Key(), withNote(o.State.String(), string(o.Cause)), number(o.Status), moment(o.FetchedAt), moment(o.FreshUntil),
			moment(o.UnreachableSince), moment(o.NextAttempt))
	}
	t.print(r.out)
}

func showCommand() *cobra.Command {
	var diff bool
	var agent, as, site string
	cmd := remoteCommand(cobra.Command{
		Use:   "show [--as TOKEN] [--diff | --agent NAME] ORIGIN",
		Short: "Shows the record and the history of an origin, or what changed in its robots.txt",
		Long: `Shows what the gateway knows of the robots.txt of an origin: the record, its effect on crawling
now, its sitemaps, and its history with the newest version first. A text that is an HTML page, or
that came with 202 (Accepted), is flagged. For each version the history has the first and the last
fetch, and until when its text is kept: the time of the option retain after the last decision that
used it. That column is empty if the text is gone.

With --agent the command lists the preferences of robots.txt for that agent, each with its line and
path, and says which sitemaps the agent may fetch. "robots check" says which preferences decide for
a URL.

` + anOrigin,
		Example: `  crawlgate robots show example.com
  crawlgate robots show --diff http://example.com:8080`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) != 1 {
			return exitError, misused("want one origin")
		}
		if diff && agent != "" || site != "" && agent == "" {
			return exitError, misused("--agent is not for --diff, and --site is for --agent")
		}
		if diff {
			return exitOK, ask(ctx, r, get("diff", url.Values{"origin": args, "as": {as}}), printDiff)
		}
		query := url.Values{"origin": args, "as": {as}, "agent": {agent}, "site": {site}}
		return exitOK, ask(ctx, r, get("origin", query), printOrigin)
	})
	f := cmd.Flags()
	f.BoolVar(&diff, "diff", false, "show instead which lines changed between the last two versions of the text")
	f.StringVar(&as, "as", "", "show the record that was fetched in the name of this agent, by one of the product tokens after \"differs for\"")
	f.StringVar(&agent, "agent", "", "list the preferences for this agent, and which sitemaps it may fetch: the name of an agent block or, without blocks, a product token")
	f.StringVar(&site, "site", "", "with --agent, the listener that it belongs to, if there are several")
	return cmd
}

const maxNamed = 20

// anOrigin explains how to name origins.
const anOrigin = `An origin is the URL of a site, or a host such as example.com or example.com:8080. A host means the
one origin of it that the gateway knows, at any scheme and port. If there are several, the command
lists them and fails.`

// flagTexts are the flags of a text in words.
var flagTexts = map[string]string{
	engine.FlagHTML: "the text is an HTML page: what parses of it decides",
	engine.Flag202:  "the answer was 202 (Accepted): the text may stand for one that is still being made",
}

func printOrigin(w io.Writer, d adminapi.OriginDetail) {
	t, r := newTable(), d.Record
	t.fact("origin", r.Origin.String())
	t.fact("robots.txt", r.RobotsURL)
	t.fact("fetched as", r.Agent)
	t.fact("differs for", strings.Join(d.Variants, ", "))
	t.fact("state", withNote(r.State.String(), string(r.Cause)))
	t.fact("access", d.View.Access)
	t.fact("tdm file", d.TDMFile)
	t.fact("status", number(r.Status))
	t.fact("detail", r.Detail)
	t.fact("by way of", strings.Join(r.Hops, ", "))
	t.fact("sha256", r.SHA256.Hex())
	if r.Truncated {
		t.fact("truncated", "the file goes on")
	}
	for _, flag := range r.Flags {
		t.fact("flag", cmp.Or(flagTexts[flag], flag))
	}
	for i, s := range r.Sitemaps {
		if i == maxNamed {
			t.fact("sitemap", fmt.Sprintf("and %d more: see robots sitemaps", len(r.Sitemaps)-i))
			break
		}
		note := fmt.Sprintf("line %d", s.Line)
		if !s.InScope {
			note += ", another origin"
		}
		t.fact("sitemap", withNote(s.URL, strings.TrimSuffix(note+", "+s.Access, ", ")))
	}
	t.fact("fetched", moment(r.FetchedAt))
	t.fact("fresh until", moment(r.FreshUntil))
	t.fact("unreachable since", moment(r.UnreachableSince))
	t.fact("attempts", number(r.Attempts))
	if f := r.LastFailure; !f.IsZero() {
		t.fact("last failure", strings.TrimSpace(moment(f.At)+" "+string(f.Cause)+" "+number(f.Status)+" "+f.Detail))
	}
	t.fact("next attempt", moment(r.NextAttempt))
	if g := r.LastGood; g != nil {
		t.fact("last good", moment(g.FetchedAt)+" "+g.SHA256.Hex())
	}
	h := newTable("FIRST SEEN", "LAST SEEN", "KEPT UNTIL", "STATE", "STATUS", "SIZE", "SHA256")
	for _, v := range d.History {
		h.row(moment(v.FirstSeen), moment(v.LastSeen), moment(v.KeptUntil), withNote(v.State.String(), string(v.Cause)),
			number(v.Status), number(v.Size), v.SHA256.Hex())
	}
	t.print(w)
	printSections(w, preferencesTable(d.Preferences), h)
}

func preferencesTable(list []adminapi.Preference) *table {
	said := newTable("PURPOSE", "SAYS", "SOURCE", "LINE", "PATH")
	for i, p := range list {
		if i == maxNamed {
			said.row(fmt.Sprintf("and %d more: see --json", len(list)-i))
			break
		}
		said.row(p.Purpose, p.Value, p.Source, number(p.Line), p.Path)
	}
	return said
}

func printDiff(w io.Writer, d adminapi.TextDiff) {
	printLine(w, fmt.Sprintf("--- %s/robots.txt %s %s", d.Origin, moment(d.From.FirstSeen), d.From.SHA256.Hex()))
	printLine(w, fmt.Sprintf("+++ %s/robots.txt %s %s", d.Origin, moment(d.To.FirstSeen), d.To.SHA256.Hex()))
	for _, h := range d.Hunks {
		printLine(w, fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.From, h.FromCount, h.To, h.ToCount))
		for _, line := range h.Lines {
			printLine(w, line)
		}
	}
}

func purgeCommand() *cobra.Command {
	return remoteCommand(cobra.Command{
		Use:   "purge ORIGIN...",
		Short: "Forgets what a gateway knows of origins",
		Long: `Forgets the record and the history of each origin, at all gateways of a fleet. The next request for
the origin fetches its robots.txt. The URL of a page is an error.

` + anOrigin + `

Exit status: 0 it is done, 1 an origin was not known, or a gateway of the fleet has not answered,
2 something failed.`,
		Example: `  crawlgate robots purge https://example.com`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		return orderEach(ctx, r, args, aboutOrigin("purge"), func(w io.Writer, p adminapi.Purged) {
			what := "purged"
			if !p.Known {
				what = "was not known"
			}
			printLine(w, p.Origin+" "+what)
		})
	})
}

// aboutOrigin makes the requests of a command that takes origins.
func aboutOrigin(path string) func(arg string) adminRequest {
	return func(arg string) adminRequest { return post(path, adminapi.OriginRequest{Origin: arg}) }
}

func refreshCommand() *cobra.Command {
	return remoteCommand(cobra.Command{
		Use:   "refresh ORIGIN...",
		Short: "Makes a gateway fetch the robots.txt of origins, even if it is fresh",
		Long: `Fetches the robots.txt of each origin, even if the record is fresh, and shows the new record. All
gateways of a fleet do so. An origin that was not known and cannot be reached leaves no record,
because its name may be mistyped. If a stop or a deny of the configuration forbids the fetch, the
error names it.

` + anOrigin + `

Exit status: 0 it is done, 1 a fetch failed, or a gateway of the fleet has not answered, 2 the
command failed.`,
		Example: `  crawlgate robots refresh example.com`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		return orderEach(ctx, r, args, aboutOrigin("refresh"), func(w io.Writer, d adminapi.Refreshed) {
			line := d.Record.Origin.String() + " " + withNote(d.Record.State.String(), string(d.Record.Cause))
			if f := d.Record.LastFailure; !f.IsZero() {
				line += "; the fetch failed: " + strings.TrimSpace(string(f.Cause)+" "+number(f.Status)+" "+f.Detail)
			}
			if d.Forgotten {
				line += "; it was not known, and no record is kept"
			}
			printLine(w, line)
		})
	})
}
