package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// maxScanned bounds the records that are read for one page, even if few of them pass the filter.
const maxScanned = 10_000

// ListOrigins lists origins in the order of their URLs.
func ListOrigins(ctx context.Context, e *engine.Engine, request OriginsRequest) (OriginList, error) {
	limit, state := cmp.Or(request.Limit, DefaultPage), request.State
	list := e.Cache().List
	if request.Host != nil {
		var err error
		if list, err = listHost(e.Cache(), *request.Host); err != nil {
			return OriginList{}, err
		}
	}
	if !slices.Contains([]string{"", "rules", "absent", "unreachable"}, state) {
		return OriginList{}, badRequest("state %q: want rules, absent, unreachable", state)
	}
	page, now := OriginList{Origins: []OriginInfo{}, Next: request.After}, time.Now()
	for scanned := 0; scanned < maxScanned; {
		batch := robotscache.MaxList
		if state == "" {
			batch = limit - len(page.Origins)
		}
		records, err := list(ctx, page.Next, batch)
		if err != nil {
			return OriginList{}, fmt.Errorf("listing origins: %w", err)
		}
		for _, record := range records {
			page.Next = record.Key().String()
			if info := infoOf(record, e.Config.Cache.Policy, now); state == "" || info.State.String() == state {
				page.Origins = append(page.Origins, info)
			}
			if len(page.Origins) == limit {
				return page, nil
			}
		}
		if len(records) < batch {
			page.Next = ""
			break
		}
		scanned += len(records)
	}
	return page, nil
}

// lister is [robotscache.Store.List].
type lister func(ctx context.Context, after string, limit int) ([]fetch.Record, error)

// listHost returns a lister of the origins of one host, with their variants, at all ports or at the
// given one.
func listHost(cache *robotscache.Cache, host string) (lister, error) {
	var origins []origin.Origin
	for _, scheme := range []string{"ftp", "http", "https"} { // in the order of their URLs
		o, err := origin.FromAuthority(scheme, host)
		if err != nil {
			return nil, noSite(err)
		}
		origins = append(origins, o)
	}
	further := []string{" ", ":"} // what may follow a name: the agent of a variant, or another port
	if origins[0].Port == origins[1].Port {
		further = further[:1] // a port was given
	}
	return func(ctx context.Context, after string, limit int) (records []fetch.Record, err error) {
		for _, o := range origins {
			name := o.String()
			if entry, ok := cache.Peek(o, ""); ok && name > after {
				records = append(records, entry.Record())
			}
			for _, next := range further {
				if len(records) >= limit {
					break
				}
				batch, err := cache.List(ctx, max(name+next, after), limit-len(records))
				if err != nil {
					return nil, err
				}
				isOther := func(r fetch.Record) bool { return !strings.HasPrefix(r.Key().String(), name+next) }
				records = append(records, slices.DeleteFunc(batch, isOther)...)
			}
		}
		return records[:min(len(records), limit)], nil
	}, nil
}

// ParseOrigin reads the URL of a site. The URL of a page is an error. The error is a
// caddy.APIError.
func ParseOrigin(text string) (origin.Origin, error) {
	o, err := origin.ParseSite(text)
	return o, noSite(err)
}

// Resolve returns the origin that a text names. A URL names its own origin. A host, with or without
// a port, names its only known origin, with any scheme. The error is a caddy.APIError: 400 if the
// text is neither, 404 if no origin of the host is known, and 409 with a list of origins if there
// are several.
func Resolve(ctx context.Context, e *engine.Engine, text string) (o origin.Origin, err error) {
	if strings.Contains(text, "://") {
		o, err = origin.Parse(text)
		return o, noSite(err)
	}
	list, err := listHost(e.Cache(), text)
	if err != nil {
		return o, err
	}
	records, err := list(ctx, "", MaxPage)
	if err != nil {
		return o, fmt.Errorf("listing the origins of %.200s: %w", text, err)
	}
	var names []string
	for i := range records {
		if name := records[i].Origin.String(); !slices.Contains(names, name) {
			o, names = records[i].Origin, append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return o, fault(http.StatusNotFound, "nothing is known about %.200[1]s: no request was made to it; name a new site by its URL, such as https://%.200[1]s", text)
	case len(names) > 1:
		return origin.Origin{}, fault(http.StatusConflict, "say which one is meant: %s", listed(names))
	}
	return o, nil
}

// noSite turns an error about a text that names no site into an API error. It returns nil for nil.
func noSite(err error) error {
	return wanted(err, "a host such as example.com, or a URL such as https://example.com")
}

// wanted turns an error of package origin into an API error that names the expected form. It
// returns nil for nil.
func wanted(err error, what string) error {
	if err == nil {
		return nil
	}
	return badRequest("%s: want %s", strings.TrimPrefix(err.Error(), "origin: "), what)
}

// listed lists at most [maxNamed] names in a message.
func listed(names []string) string {
	if len(names) > maxNamed {
		names = append(names[:maxNamed:maxNamed], "…")
	}
	return strings.Join(names, ", ")
}

// ShowOrigin returns everything known about an origin and, for an agent, what its robots.txt says
// to the agent.
func ShowOrigin(ctx context.Context, e *engine.Engine, request OriginQuery) (OriginDetail, error) {
	o, err := Resolve(ctx, e, request.Origin)
	if err != nil {
		return OriginDetail{}, err
	}
	as := ""
	if request.As != nil {
		as = *request.As
	}
	entry, ok := e.Cache().Peek(o, as)
	if !ok {
		key := fetch.Key{Origin: o, Agent: as}
		return OriginDetail{}, fault(http.StatusNotFound, "nothing is known about %s: no request was made to it", key)
	}
	d, err := detail(ctx, e, entry)
	if err != nil || request.Agent == nil {
		return d, err
	}
	site, err := siteAt(e, request.Site)
	if err != nil {
		return OriginDetail{}, err
	}
	identity, err := identityOf(site.Identifier, *request.Agent)
	if err != nil {
		return OriginDetail{}, err
	}
	judgeSitemaps(ctx, e, identity, d.Record.Sitemaps)
	if request.As == nil {
		entry, _ = e.Cache().PeekAs(o, identity.Asker())
	}
	if rules := entry.Rules(); rules != nil {
		d.Preferences = scopedOf(rules, identity)
	}
	return d, nil
}

// Purge forgets the record of an origin, at all gateways.
func Purge(ctx context.Context, e *engine.Engine, request OriginRequest) (Purged, error) {
	o, err := Resolve(ctx, e, request.Origin)
	if err == nil && strings.Contains(request.Origin, "://") {
		_, err = ParseOrigin(request.Origin) // a purge of a page must not forget the site
	}
	if err != nil {
		return Purged{}, err
	}
	_, known := e.Cache().Peek(o, "")
	if err := e.Purge(ctx, o); err != nil {
		return Purged{}, err
	}
	report := e.Fleet().Tell(ctx, cluster.Purge, o.String(), found(known))
	_, _, all := report.Counts()
	return Purged{o.String(), known || all > 0, report}, nil
}

// Refresh fetches the robots.txt of an origin, and returns the new record. If the origin was
// unknown and cannot be reached, it keeps no record, because the name may be mistyped.
func Refresh(ctx context.Context, e *engine.Engine, request OriginRequest) (Refreshed, error) {
	o, err := Resolve(ctx, e, request.Origin)
	if err != nil {
		return Refreshed{}, err
	}
	if err := e.StopsFetch(o); err != nil {
		return Refreshed{}, fault(http.StatusConflict, "%s is not asked, %w", o, err)
	}
	began := time.Now()
	_, known := e.Cache().Peek(o, "")
	known = known || !isNew(ctx, e, o, began)
	entry, err := e.Cache().Refresh(ctx, o)
	if err != nil {
		return Refreshed{}, fmt.Errorf("fetching %s: %w", o.RobotsURL(), err)
	}
	answer := Refreshed{}
	answer.OriginDetail, err = detail(ctx, e, entry)
	answer.Forgotten = !known && answer.Record.State == fetch.StateUnreachable && isNew(ctx, e, o, began)
	if answer.Forgotten {
		return answer, cmp.Or(err, e.Purge(ctx, o))
	}
	answer.Acknowledgements = e.Fleet().Tell(ctx, cluster.Refresh, o.String(), 1)
	return answer, err
}

// isNew reports whether the store has no record of an origin from before a time. It is false if the
// store does not answer.
func isNew(ctx context.Context, e *engine.Engine, o origin.Origin, at time.Time) bool {
	versions, err := e.Cache().History(ctx, fetch.Key{Origin: o})
	if err != nil && !errors.Is(err, robotscache.ErrNotFound) {
		return false
	}
	variants, err := e.Cache().Variants(ctx, o)
	if err != nil || len(variants) > 0 || len(versions) > 1 {
		return false
	}
	return len(versions) == 0 || !versions[0].FirstSeen.Before(at)
}

// found returns how many records or blocks there were.
func found(there bool) int { return map[bool]int{true: 1}[there] }

func detail(ctx context.Context, e *engine.Engine, entry *robotscache.Entry) (OriginDetail, error) {
	now, record := time.Now(), entry.Record()
	v := entry.View(now)
	d := OriginDetail{
		Record: infoOf(record, e.Config.Cache.Policy, now), TDMFile: e.TDMFileState(record.Origin),
		View: ViewInfo{
			Access: v.Access.String(), State: v.State.String(), Cause: string(v.Cause), SHA256: v.SHA256.Hex(),
			FetchedAt: v.FetchedAt.UTC(), FreshUntil: v.FreshUntil.UTC(), RetryAt: v.NextAttempt.UTC(),
		},
	}
	d.Record.Sitemaps = sitemapsOf(record.Origin, entry.Rules())
	if record.Agent == "" {
		kept, err := e.Cache().Variants(ctx, record.Origin)
		if err != nil {
			return d, fmt.Errorf("listing the variants of %s: %w", record.Origin, err)
		}
		for i := range kept {
			d.Variants = append(d.Variants, kept[i].Agent)
		}
	}
	var err error
	d.History, err = history(ctx, e, record.Key())
	return d, err
}

// history reads the history of a record from the store. It is empty if nothing is saved yet.
func history(ctx context.Context, e *engine.Engine, k fetch.Key) ([]robotscache.Version, error) {
	versions, err := e.Cache().History(ctx, k)
	if errors.Is(err, robotscache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the history of %s: %w", k, err)
	}
	return versions, nil
}

func infoOf(r fetch.Record, p fetch.Policy, now time.Time) OriginInfo {
	r = p.Settle(r, now)
	return OriginInfo{Record: r, RobotsURL: r.Origin.RobotsURL(), Flags: engine.FlagsOf(r)}
}
