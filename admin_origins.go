package crawlgate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

func infoOf(r fetch.Record, p fetch.Policy, now time.Time) adminapi.OriginInfo {
	r = p.Settle(r, now)
	i := adminapi.OriginInfo{
		Origin: r.Origin.String(), RobotsURL: r.Origin.RobotsURL(),
		State: r.State.String(), Cause: string(r.Cause), Detail: r.Detail, Status: r.Status, Hops: r.Hops,
		SHA256: hexOf(r.SHA256), Truncated: r.Truncated, Flags: engine.FlagsOf(r),
		FetchedAt: r.FetchedAt.UTC(), FreshUntil: r.FreshUntil.UTC(), UnreachableSince: r.UnreachableSince.UTC(),
		Attempts: r.Attempts, NextAttempt: r.NextAttempt.UTC(),
	}
	if f := r.LastFailure; !f.At.IsZero() {
		i.LastFailure = &adminapi.FailureInfo{
			At: f.At.UTC(), Cause: string(f.Cause), Detail: f.Detail, Status: f.Status, Hops: f.Hops,
		}
	}
	if c := r.LastGood; c != nil {
		i.LastGood = &adminapi.CopyInfo{SHA256: hexOf(c.SHA256), FetchedAt: c.FetchedAt.UTC()}
	}
	return i
}

func viewOf(e *robotscache.Entry, now time.Time) adminapi.ViewInfo {
	v := e.View(now)
	return adminapi.ViewInfo{
		Access: v.Access.String(), State: v.State.String(), Cause: string(v.Cause), SHA256: hexOf(v.SHA256),
		FetchedAt: v.FetchedAt.UTC(), FreshUntil: v.FreshUntil.UTC(), RetryAt: v.RetryAt.UTC(),
	}
}

// hexOf is the hash as text, empty for none.
func hexOf(sha [32]byte) string {
	if sha == [32]byte{} {
		return ""
	}
	return hex.EncodeToString(sha[:])
}

// maxScanned bounds the records that are read for one page, however few of them pass the filter.
const maxScanned = 10_000

// adminOrigins lists origins in the order of their URLs.
func adminOrigins(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "after", "host", "limit", "state")
	if err != nil {
		return nil, err
	}
	limit, err := pageSize(query)
	if err != nil {
		return nil, err
	}
	list := e.Cache().List
	if query.Has("host") {
		if list, err = listHost(e, query.Get("host")); err != nil {
			return nil, err
		}
	}
	state := query.Get("state")
	if err := oneOf("state", state, "rules", "absent", "unreachable"); err != nil {
		return nil, adminError(http.StatusBadRequest, "%w", err)
	}
	page, now := adminapi.OriginList{Origins: []adminapi.OriginInfo{}, Next: query.Get("after")}, time.Now()
	for scanned := 0; scanned < maxScanned; {
		batch := robotscache.MaxList
		if state == "" {
			batch = limit - len(page.Origins)
		}
		records, err := list(r.Context(), page.Next, batch)
		if err != nil {
			return nil, fmt.Errorf("listing origins: %w", err)
		}
		for _, record := range records {
			page.Next = record.Origin.String()
			if info := infoOf(record, e.Config.Cache.Policy, now); state == "" || info.State == state {
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

// listHost returns a function like [robotscache.Store.List] for the origins of one host: those at
// any port of it, or at the port that is given.
func listHost(e *engine.Engine, host string) (func(ctx context.Context, after string, limit int) ([]fetch.Record, error), error) {
	var origins []origin.Origin
	for _, scheme := range []string{"ftp", "http", "https"} { // in the order of their URLs
		o, err := origin.FromAuthority(scheme, host)
		if err != nil {
			return nil, adminError(http.StatusBadRequest, "host: %w", err)
		}
		origins = append(origins, o)
	}
	anyPort := origins[0].Port != origins[1].Port // no port was given
	return func(ctx context.Context, after string, limit int) (records []fetch.Record, err error) {
		for _, o := range origins {
			name := o.String()
			if entry, ok := e.Cache().Peek(o); ok && name > after {
				records = append(records, entry.Record())
			}
			for from := max(name+":", after); anyPort && len(records) < limit; {
				batch, err := e.Cache().List(ctx, from, limit-len(records))
				if err != nil {
					return nil, err
				}
				for _, r := range batch {
					if from = r.Origin.String(); !strings.HasPrefix(from, name+":") {
						batch = nil
						break
					}
					records = append(records, r)
				}
				if len(batch) == 0 {
					break
				}
			}
		}
		return records[:min(len(records), limit)], nil
	}, nil
}

// adminOrigin shows one origin.
func adminOrigin(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "origin")
	if err != nil {
		return nil, err
	}
	o, err := readOrigin(query.Get("origin"))
	if err != nil {
		return nil, err
	}
	entry, ok := e.Cache().Peek(o)
	if !ok {
		return nil, adminError(http.StatusNotFound, "nothing is known of %s: no request has asked for it", o)
	}
	return detail(e, r.Context(), o, entry)
}

func detail(e *engine.Engine, ctx context.Context, o origin.Origin, entry *robotscache.Entry) (adminapi.OriginDetail, error) {
	now := time.Now()
	d := adminapi.OriginDetail{Record: infoOf(entry.Record(), e.Config.Cache.Policy, now), View: viewOf(entry, now)}
	d.Record.Sitemaps = engine.SitemapsOf(entry.View(now).Rules)
	history, err := history(e, ctx, o)
	for _, v := range history {
		d.History = append(d.History, versionOf(v))
	}
	return d, err
}

// history is that of the store. One that the store could not take yet is empty.
func history(e *engine.Engine, ctx context.Context, o origin.Origin) ([]robotscache.Version, error) {
	history, err := e.Cache().History(ctx, o)
	if errors.Is(err, robotscache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the history of %s: %w", o, err)
	}
	return history, nil
}

func versionOf(v robotscache.Version) adminapi.VersionInfo {
	return adminapi.VersionInfo{
		State: v.State.String(), Cause: string(v.Cause), Status: v.Status, SHA256: hexOf(v.SHA256), Size: v.Size,
		FirstSeen: v.FirstSeen.UTC(), LastSeen: v.LastSeen.UTC(),
	}
}

// adminBody returns a text by its hash: what the access log's sha256 stands for.
func adminBody(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "sha256")
	if err != nil {
		return nil, err
	}
	sha, err := readSHA256("sha256", query.Get("sha256"))
	if err != nil {
		return nil, err
	}
	body, err := e.Cache().Body(r.Context(), sha)
	if err != nil {
		return nil, fmt.Errorf("reading text %x: %w", sha, err)
	}
	return adminText(body), nil
}

func readSHA256(name, text string) (sha [32]byte, err error) {
	if n, err := hex.Decode(sha[:], []byte(text[:min(len(text), 2*len(sha))])); err != nil || n != len(sha) || len(text) != 2*len(sha) {
		return sha, adminError(http.StatusBadRequest, "%s %.70q: want the SHA-256 of a text in 64 hexadecimal digits", name, text)
	}
	return sha, nil
}

// diffContext is how many unchanged lines a hunk shows around its changes.
const diffContext = 3

// adminDiff compares two versions of an origin's text, by default the last two.
func adminDiff(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "origin", "from", "to")
	if err != nil {
		return nil, err
	}
	o, err := readOrigin(query.Get("origin"))
	if err != nil {
		return nil, err
	}
	history, err := history(e, r.Context(), o)
	if err != nil {
		return nil, err
	}
	from, to, err := versions(o, history, query.Get("from"), query.Get("to"))
	if err != nil {
		return nil, err
	}
	d := adminapi.TextDiff{Origin: o.String(), From: versionOf(from), To: versionOf(to), Hunks: []adminapi.DiffHunk{}}
	var texts [2][]byte
	for i, v := range []robotscache.Version{from, to} {
		body, err := e.Cache().Body(r.Context(), v.SHA256)
		if err != nil {
			return nil, fmt.Errorf("reading text %x: %w", v.SHA256, err)
		}
		// Nobody reads what is beyond.
		texts[i] = body[:min(len(body), robotstxt.MaxSize)]
	}
	for _, h := range linediff.Compare(texts[0], texts[1], diffContext) {
		hunk := adminapi.DiffHunk{FromLine: h.From, FromCount: h.FromCount, ToLine: h.To, ToCount: h.ToCount}
		for _, l := range h.Lines {
			hunk.Lines = append(hunk.Lines, string(l.Op)+escape.Unprintable(l.Text))
		}
		d.Hunks = append(d.Hunks, hunk)
	}
	return d, nil
}

// versions finds two texts in a history, newest first: those with the given hashes; by default the newest one, and the
// one before.
func versions(o origin.Origin, history []robotscache.Version, from, to string) (older, newer robotscache.Version, err error) {
	n, err := pick(o, history, "to", to)
	if err != nil {
		return older, newer, err
	}
	newer = history[n]
	if from != "" {
		if n, err = pick(o, history, "from", from); err == nil {
			older = history[n]
		}
		return older, newer, err
	}
	for _, v := range history[n+1:] {
		if v.SHA256 != [32]byte{} && v.SHA256 != newer.SHA256 {
			return v, newer, nil
		}
	}
	return older, newer, adminError(http.StatusNotFound, "no earlier text of %s is kept", o)
}

// pick returns the index of the version with the given hash, or of the newest that has a text.
func pick(o origin.Origin, history []robotscache.Version, name, text string) (int, error) {
	var sha [32]byte
	if text != "" {
		var err error
		if sha, err = readSHA256(name, text); err != nil {
			return 0, err
		}
	}
	for i, v := range history {
		if text == "" && v.SHA256 != [32]byte{} || text != "" && v.SHA256 == sha {
			return i, nil
		}
	}
	return 0, adminError(http.StatusNotFound, "%s: %s has no such version", name, o)
}

// readOriginRequest reads the origin that a request is about.
func readOriginRequest(r *http.Request) (origin.Origin, error) {
	var request adminapi.OriginRequest
	if err := readJSON(r, &request); err != nil {
		return origin.Origin{}, err
	}
	return readOrigin(request.Origin)
}

// adminPurge forgets an origin.
func adminPurge(e *engine.Engine, r *http.Request) (any, error) {
	o, err := readOriginRequest(r)
	if err != nil {
		return nil, err
	}
	_, known := e.Cache().Peek(o)
	if err := e.Cache().Purge(r.Context(), o); err != nil {
		return nil, err
	}
	return adminapi.Purged{Origin: o.String(), Known: known}, nil
}

// adminRefresh fetches the robots.txt of an origin, and shows what is known then.
func adminRefresh(e *engine.Engine, r *http.Request) (any, error) {
	o, err := readOriginRequest(r)
	if err != nil {
		return nil, err
	}
	if err := e.StopsFetch(o); err != nil {
		return nil, adminError(http.StatusConflict, "%s is not asked, %w", o, err)
	}
	entry, err := e.Cache().Refresh(r.Context(), o)
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", o.RobotsURL(), err)
	}
	return detail(e, r.Context(), o, entry)
}
