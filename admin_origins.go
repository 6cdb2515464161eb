package crawlgate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// originInfo is the record of an origin as the admin API shows it. Times are in UTC; what says nothing is left out.
type originInfo struct {
	Origin    string `json:"origin"`
	RobotsURL string `json:"robots_url"`
	// State, Cause, Detail, Status and Hops describe the answer in force, as in the access log.
	State  string   `json:"state"`
	Cause  string   `json:"cause,omitempty"`
	Detail string   `json:"detail,omitempty"`
	Status int      `json:"status,omitempty"`
	Hops   []string `json:"hops,omitempty"`
	// SHA256 and Truncated describe its text.
	SHA256    string `json:"sha256,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Flags say why the text may be something else than a robots.txt: flagHTML, which a list does
	// not have, and flag202.
	Flags []string `json:"flags,omitempty"`
	// Sitemaps are those of the text that decides, which a list does not have.
	Sitemaps []string `json:"sitemaps,omitempty"`

	FetchedAt        time.Time    `json:"fetched_at,omitzero"`
	FreshUntil       time.Time    `json:"fresh_until,omitzero"`
	UnreachableSince time.Time    `json:"unreachable_since,omitzero"`
	Attempts         int          `json:"attempts,omitempty"`
	NextAttempt      time.Time    `json:"next_attempt,omitzero"`
	LastFailure      *failureInfo `json:"last_failure,omitempty"`
	LastGood         *copyInfo    `json:"last_good,omitempty"`
}

// failureInfo is the latest failure of a run.
type failureInfo struct {
	At     time.Time `json:"at"`
	Cause  string    `json:"cause"`
	Detail string    `json:"detail,omitempty"`
	Status int       `json:"status,omitempty"`
	Hops   []string  `json:"hops,omitempty"`
}

// copyInfo is the last good copy of an origin that does not answer.
type copyInfo struct {
	SHA256    string    `json:"sha256"`
	FetchedAt time.Time `json:"fetched_at"`
}

// viewInfo is what a record means for crawling now.
type viewInfo struct {
	// Access is "rules", "last_good", "allow" or "deny".
	Access     string    `json:"access"`
	State      string    `json:"state"`
	Cause      string    `json:"cause,omitempty"`
	SHA256     string    `json:"sha256,omitempty"`
	FetchedAt  time.Time `json:"fetched_at,omitzero"`
	FreshUntil time.Time `json:"fresh_until,omitzero"`
	RetryAt    time.Time `json:"retry_at,omitzero"`
}

// versionInfo is one stretch of an origin's history.
type versionInfo struct {
	State     string    `json:"state"`
	Cause     string    `json:"cause,omitempty"`
	Status    int       `json:"status,omitempty"`
	SHA256    string    `json:"sha256,omitempty"`
	Size      int       `json:"size,omitempty"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// The flags of a text. It decides with what parses all the same.
const (
	flagHTML = "html"       // it is an HTML page
	flag202  = "status_202" // it came with 202 (Accepted), perhaps in place of what is still being made
)

func flagsOf(r fetch.Record) (flags []string) {
	if text, ok := r.Text(); ok && robotstxt.IsHTML(text.Body) {
		flags = append(flags, flagHTML)
	}
	if r.State == fetch.StateRules && r.Status == http.StatusAccepted {
		flags = append(flags, flag202)
	}
	return flags
}

// sitemapsOf are the sitemaps of a ruleset, nil for none, fit to be shown.
func sitemapsOf(rules *robotstxt.Ruleset) []string {
	urls := rules.Sitemaps()
	for i, u := range urls {
		urls[i] = visible(u)
	}
	return urls
}

func infoOf(r fetch.Record, p fetch.Policy, now time.Time) originInfo {
	r = p.Settle(r, now)
	i := originInfo{
		Origin: r.Origin.String(), RobotsURL: r.Origin.RobotsURL(),
		State: r.State.String(), Cause: string(r.Cause), Detail: r.Detail, Status: r.Status, Hops: r.Hops,
		SHA256: hexOf(r.SHA256), Truncated: r.Truncated, Flags: flagsOf(r),
		FetchedAt: r.FetchedAt.UTC(), FreshUntil: r.FreshUntil.UTC(), UnreachableSince: r.UnreachableSince.UTC(),
		Attempts: r.Attempts, NextAttempt: r.NextAttempt.UTC(),
	}
	if f := r.LastFailure; !f.At.IsZero() {
		i.LastFailure = &failureInfo{f.At.UTC(), string(f.Cause), f.Detail, f.Status, f.Hops}
	}
	if c := r.LastGood; c != nil {
		i.LastGood = &copyInfo{hexOf(c.SHA256), c.FetchedAt.UTC()}
	}
	return i
}

func viewOf(e *robotscache.Entry, now time.Time) viewInfo {
	v := e.View(now)
	return viewInfo{
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

// originList is a page of origins.
type originList struct {
	Origins []originInfo `json:"origins"`
	// Next is the parameter after of the next page, empty if there is none.
	Next string `json:"next,omitempty"`
}

// maxScanned bounds the records that are read for one page, however few of them pass the filter.
const maxScanned = 10_000

// adminOrigins lists origins in the order of their URLs.
func adminOrigins(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "after", "host", "limit", "state")
	if err != nil {
		return nil, err
	}
	limit, err := pageSize(query)
	if err != nil {
		return nil, err
	}
	list := a.rulesets.cache.List
	if query.Has("host") {
		if list, err = a.listHost(query.Get("host")); err != nil {
			return nil, err
		}
	}
	state := query.Get("state")
	if err := oneOf("state", state, "rules", "absent", "unreachable"); err != nil {
		return nil, adminError(http.StatusBadRequest, "%w", err)
	}
	page, now := originList{Origins: []originInfo{}, Next: query.Get("after")}, time.Now()
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
			if info := infoOf(record, a.cfg.policy, now); state == "" || info.State == state {
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
func (a *App) listHost(host string) (func(ctx context.Context, after string, limit int) ([]fetch.Record, error), error) {
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
			if entry, ok := a.rulesets.cache.Peek(o); ok && name > after {
				records = append(records, entry.Record())
			}
			for from := max(name+":", after); anyPort && len(records) < limit; {
				batch, err := a.rulesets.cache.List(ctx, from, limit-len(records))
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

// originDetail is all that is known of one origin.
type originDetail struct {
	Record  originInfo    `json:"record"`
	View    viewInfo      `json:"view"`
	History []versionInfo `json:"history"`
}

// adminOrigin shows one origin.
func adminOrigin(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "origin")
	if err != nil {
		return nil, err
	}
	o, err := readOrigin(query.Get("origin"))
	if err != nil {
		return nil, err
	}
	entry, ok := a.rulesets.cache.Peek(o)
	if !ok {
		return nil, adminError(http.StatusNotFound, "nothing is known of %s: no request has asked for it", o)
	}
	return a.detail(r.Context(), o, entry)
}

func (a *App) detail(ctx context.Context, o origin.Origin, entry *robotscache.Entry) (originDetail, error) {
	now := time.Now()
	d := originDetail{Record: infoOf(entry.Record(), a.cfg.policy, now), View: viewOf(entry, now)}
	d.Record.Sitemaps = sitemapsOf(entry.View(now).Rules)
	history, err := a.history(ctx, o)
	for _, v := range history {
		d.History = append(d.History, versionOf(v))
	}
	return d, err
}

// history is that of the store. One that the store could not take yet is empty.
func (a *App) history(ctx context.Context, o origin.Origin) ([]robotscache.Version, error) {
	history, err := a.rulesets.cache.History(ctx, o)
	if errors.Is(err, robotscache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the history of %s: %w", o, err)
	}
	return history, nil
}

func versionOf(v robotscache.Version) versionInfo {
	return versionInfo{
		State: v.State.String(), Cause: string(v.Cause), Status: v.Status, SHA256: hexOf(v.SHA256), Size: v.Size,
		FirstSeen: v.FirstSeen.UTC(), LastSeen: v.LastSeen.UTC(),
	}
}

// adminBody returns a text by its hash: what the access log's sha256 stands for.
func adminBody(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "sha256")
	if err != nil {
		return nil, err
	}
	sha, err := readSHA256("sha256", query.Get("sha256"))
	if err != nil {
		return nil, err
	}
	body, err := a.rulesets.cache.Body(r.Context(), sha)
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

// textDiff is what changed from one text to another.
type textDiff struct {
	Origin string      `json:"origin"`
	From   versionInfo `json:"from"`
	To     versionInfo `json:"to"`
	Hunks  []diffHunk  `json:"hunks"`
}

// diffHunk is a stretch of changed lines with three unchanged ones on either side. Each line begins with "-", "+" or a
// blank; octets that are not printable are escaped.
type diffHunk struct {
	FromLine  int      `json:"from_line"`
	FromCount int      `json:"from_count"`
	ToLine    int      `json:"to_line"`
	ToCount   int      `json:"to_count"`
	Lines     []string `json:"lines"`
}

// diffContext is how many unchanged lines a hunk shows around its changes.
const diffContext = 3

// adminDiff compares two versions of an origin's text, by default the last two.
func adminDiff(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "origin", "from", "to")
	if err != nil {
		return nil, err
	}
	o, err := readOrigin(query.Get("origin"))
	if err != nil {
		return nil, err
	}
	history, err := a.history(r.Context(), o)
	if err != nil {
		return nil, err
	}
	from, to, err := versions(o, history, query.Get("from"), query.Get("to"))
	if err != nil {
		return nil, err
	}
	d := textDiff{Origin: o.String(), From: versionOf(from), To: versionOf(to), Hunks: []diffHunk{}}
	var texts [2][]byte
	for i, v := range []robotscache.Version{from, to} {
		body, err := a.rulesets.cache.Body(r.Context(), v.SHA256)
		if err != nil {
			return nil, fmt.Errorf("reading text %x: %w", v.SHA256, err)
		}
		// Nobody reads what is beyond.
		texts[i] = body[:min(len(body), robotstxt.MaxSize)]
	}
	for _, h := range linediff.Compare(texts[0], texts[1], diffContext) {
		hunk := diffHunk{FromLine: h.From, FromCount: h.FromCount, ToLine: h.To, ToCount: h.ToCount}
		for _, l := range h.Lines {
			hunk.Lines = append(hunk.Lines, string(l.Op)+visible(l.Text))
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

// originRequest is the body of purge and refresh.
type originRequest struct {
	Origin string `json:"origin"`
}

// readOriginRequest reads the origin that a request is about.
func readOriginRequest(r *http.Request) (origin.Origin, error) {
	var request originRequest
	if err := readJSON(r, &request); err != nil {
		return origin.Origin{}, err
	}
	return readOrigin(request.Origin)
}

// purged is the answer to a purge.
type purged struct {
	Origin string `json:"origin"`
	// Known says that something was there to forget.
	Known bool `json:"known"`
}

// adminPurge forgets an origin.
func adminPurge(a *App, r *http.Request) (any, error) {
	o, err := readOriginRequest(r)
	if err != nil {
		return nil, err
	}
	_, known := a.rulesets.cache.Peek(o)
	if err := a.rulesets.cache.Purge(r.Context(), o); err != nil {
		return nil, err
	}
	return purged{o.String(), known}, nil
}

// adminRefresh fetches the robots.txt of an origin, and shows what is known then.
func adminRefresh(a *App, r *http.Request) (any, error) {
	o, err := readOriginRequest(r)
	if err != nil {
		return nil, err
	}
	if err := a.stopsFetch(o); err != nil {
		return nil, adminError(http.StatusConflict, "%s is not asked, %w", o, err)
	}
	entry, err := a.rulesets.cache.Refresh(r.Context(), o)
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", o.RobotsURL(), err)
	}
	return a.detail(r.Context(), o, entry)
}
