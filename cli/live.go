package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// rules finds and remembers the robots.txt of sites. It is not safe for concurrent use.
type rules struct {
	fetch   func(ctx context.Context, k fetch.Key) fetch.Outcome
	isFile  bool // one file stands for the robots.txt of every site
	reading robotscache.Interpretation
	entries map[fetch.Key]*robotscache.Entry
}

// liveRules fetches robots.txt like a gateway with default settings, with the same address guard.
// It may also fetch from the given non-public ranges.
func liveRules(allowPrivate []string, indexHTML bool) (*rules, error) {
	ranges, err := guard.ParsePrefixes("--allow-private", allowPrivate)
	if err != nil {
		return nil, err
	}
	allowed := &guard.Guard{AllowPrivate: ranges}
	transport, err := egress.NewTransport(egress.TransportConfig{Dialer: &egress.Dialer{Guard: allowed}})
	if err != nil {
		return nil, err
	}
	fetcher := fetch.New(fetch.Config{
		Transport: transport, UserAgent: version.UserAgent(), Soft404: true,
		MaxSize: 2 * robotstxt.MaxSize, // lint shows where the part that is not read begins
	})
	get := func(ctx context.Context, k fetch.Key) fetch.Outcome {
		return fetch.Try(false, func() fetch.Outcome { return fetcher.Fetch(ctx, k, nil) })
	}
	return newRules(get, false, indexHTML), nil
}

// fileRules returns rules with one text for every site.
func fileRules(text []byte, indexHTML bool) *rules {
	out := fetch.Outcome{Kind: fetch.KindRules, Status: http.StatusOK, Started: time.Now()}
	out.Body, out.Truncated = text[:min(len(text), robotstxt.MaxSize)], len(text) > robotstxt.MaxSize
	return newRules(func(context.Context, fetch.Key) fetch.Outcome { return out }, true, indexHTML)
}

func newRules(get func(context.Context, fetch.Key) fetch.Outcome, isFile, indexHTML bool) *rules {
	return &rules{
		fetch: get, isFile: isFile, entries: make(map[fetch.Key]*robotscache.Entry),
		reading: robotscache.Interpretation{Policy: fetch.Policy{}.Complete(), IndexHTML: indexHTML},
	}
}

// Lookup implements enforce.Lookup.
func (l *rules) Lookup(ctx context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	e, source, err := l.get(ctx, fetch.Key{Origin: o})
	if r := e.Record(); a.Token != "" && fetch.TurnedAway(r.State, r.Status) {
		return l.get(ctx, fetch.Key{Origin: o, Agent: a.Token})
	}
	return e, source, err
}

func (l *rules) get(ctx context.Context, k fetch.Key) (*robotscache.Entry, robotscache.Source, error) {
	e, source := l.entries[k], robotscache.SourceHot
	if e == nil {
		out := l.fetch(ctx, k)
		if err := ctx.Err(); err != nil {
			return nil, robotscache.SourceNone, err
		}
		if out.Refused() {
			return nil, robotscache.SourceNone, &robotscache.ForbiddenError{Cause: out.Cause, Detail: out.Detail}
		}
		record := l.reading.Policy.Next(fetch.Record{Origin: k.Origin, Agent: k.Agent}, out, time.Now())
		e, source = robotscache.NewEntry(record, l.reading), robotscache.SourceFetch
		l.entries[k] = e
	}
	if l.isFile {
		source = robotscache.SourceNone
	}
	return e, source, nil
}

// came describes the fetch of a record, if it returned no robots.txt.
func (l *rules) came(k fetch.Key) string {
	r := l.entries[k].Record()
	if r.State == fetch.StateUnknown || r.State == fetch.StateRules {
		return ""
	}
	s := fmt.Sprintf("%s: %s", k.Origin.RobotsURL(), withNote(r.State.String(), string(r.Cause)))
	if r.Status != 0 {
		s += fmt.Sprintf(", status %d", r.Status)
	}
	if len(r.Hops) > 0 {
		s += ", by way of " + strings.Join(r.Hops, ", ")
	}
	if r.Detail != "" {
		s += ", " + r.Detail
	}
	return s
}

// judgeBy decides by rules for a crawler.
func judgeBy(r *rules, identity enforce.Identity, paths enforce.Paths) (judge, error) {
	policy, _, err := enforce.NewPolicy(enforce.PolicyConfig{Paths: paths}, time.Now())
	if err != nil {
		return nil, err
	}
	enforcer := &enforce.Enforcer{Rules: r, Policy: policy, Reads: enforce.Signals{RobotsTxt: true}}
	return func(ctx context.Context, rawURL string) (judgement, error) {
		if r.isFile && strings.HasPrefix(rawURL, "/") {
			rawURL = "https://robots.invalid" + rawURL // RFC 6761: nobody's
		}
		target, err := adminapi.ParseTarget(rawURL)
		if err != nil {
			return judgement{}, err
		}
		d := enforcer.Decide(ctx, enforce.Request{Method: http.MethodGet, Target: target, Identity: identity})
		if err := ctx.Err(); err != nil {
			return judgement{}, err
		}
		if d.Reason.Hard() { // refused because of the address, and so not fetched
			return judgement{LogRecord: d.Record(), fetched: rawURL + ": " + d.Detail}, nil
		}
		return judgement{d.Record(), r.came(fetch.Key{Origin: target.Origin, Agent: d.FetchedAs}), adminapi.PreferencesOf(&d)}, nil
	}, nil
}

// maxRobots bounds a file, in bytes. It is above the limit of any parser, so that lint can warn
// about files beyond that limit.
const maxRobots = 64 << 20

// readRobots reads a robots.txt from a file, or from in for "-".
func readRobots(name string, in io.Reader) ([]byte, error) {
	f, err := open(name, in)
	if err != nil {
		return nil, fmt.Errorf("reading robots.txt: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxRobots+1))
	if err == nil && len(text) > maxRobots {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("reading robots.txt from %s: %w", name, err)
	}
	return text, nil
}

// open opens a file, or takes in for "-".
func open(name string, in io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(in), nil
	}
	return os.Open(name)
}
