package cli

import (
	"context"
	"io"
	"math"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/fetch"
)

func sitemapsCommand() *cobra.Command {
	var agent, site string
	var known bool
	cmd := remoteCommand(cobra.Command{
		Use:   "sitemaps [--agent NAME] ORIGIN | --known",
		Short: "Lists the sitemaps that the robots.txt of sites name",
		Long: `Lists the sitemaps that the robots.txt of an origin names, one URL per line, as the site wrote them.
They come from the current text or, without one, from the last text. A sitemap on another site is
judged by what the gateway knows of that site. No sitemap is fetched or guessed.

` + anOrigin,
		Example: `  crawlgate robots sitemaps example.com
  crawlgate robots sitemaps --known --agent AcmeBot`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		query := url.Values{"agent": {agent}, "site": {site}}
		switch {
		case site != "" && agent == "":
			return exitError, misused("--site is for --agent")
		case known && len(args) == 0:
			return exitOK, listKnownSitemaps(ctx, r, query)
		case known || len(args) != 1:
			return exitError, misused("want one origin, or --known")
		}
		list, err := sitemapsOf(ctx, r, args[0], query)
		if err != nil {
			return exitError, err
		}
		printSitemaps(r.out, list, r.json)
		return exitOK, nil
	})
	f := cmd.Flags()
	f.StringVar(&agent, "agent", "", "leave out the sitemaps that this agent may not fetch, by the robots.txt known now")
	f.StringVar(&site, "site", "", "with --agent, the listener that it belongs to, if there are several")
	f.BoolVar(&known, "known", false, "list the sitemaps of all known origins as JSON objects, one per line: origin, url, line, in_scope and, with --agent, access")
	return cmd
}

// knownSitemap is a sitemap with the origin whose robots.txt names it.
type knownSitemap struct {
	Origin string `json:"origin"`
	adminapi.Sitemap
}

// sitemapsOf asks for the sitemaps of an origin. Those that the agent of the query may not fetch
// are left out.
func sitemapsOf(ctx context.Context, r remote, o string, query url.Values) (list []knownSitemap, err error) {
	q := url.Values{"origin": {o}, "agent": query["agent"], "site": query["site"]}
	d, err := call[adminapi.OriginDetail](ctx, r.adminClient, get("origin", q))
	if err != nil {
		return nil, err
	}
	for _, s := range d.Record.Sitemaps {
		if s.Access != adminapi.AccessDeny {
			list = append(list, knownSitemap{d.Record.Origin.String(), s})
		}
	}
	return list, nil
}

// printSitemaps writes one sitemap per line: its URL, or a JSON object.
func printSitemaps(w io.Writer, list []knownSitemap, asJSON bool) {
	for _, s := range list {
		if asJSON {
			printJSON(w, s)
		} else {
			printLine(w, s.URL)
		}
	}
}

// listKnownSitemaps prints the sitemaps of all origins that have a text. It continues if an
// origin is purged in the meantime.
func listKnownSitemaps(ctx context.Context, r remote, query url.Values) error {
	return eachPage(ctx, r, url.Values{}, math.MaxInt, func(page []adminapi.OriginInfo) error {
		for _, o := range page {
			if o.SHA256 == (fetch.Sum{}) && o.LastGood == nil {
				continue
			}
			list, err := sitemapsOf(ctx, r, o.Origin.String(), query)
			if err != nil && !isNotFound(err) {
				return err
			}
			printSitemaps(r.out, list, true)
		}
		return nil
	})
}
