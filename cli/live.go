package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// live fetches robots.txt as a gateway with its default settings does, past the same guard, and
// remembers what it found. It is not safe for concurrent use.
type live struct {
	fetcher *fetch.Fetcher
	reading robotscache.Interpretation
	entries map[origin.Origin]*robotscache.Entry
}

// newLive makes one that may fetch from the given address ranges besides the public ones.
func newLive(allowPrivate []string) (*live, error) {
	ranges, err := egress.ParsePrefixes("--allow-private", allowPrivate)
	if err != nil {
		return nil, err
	}
	guard := &egress.Guard{AllowPrivate: ranges, Ports: egress.DefaultPorts()}
	dialer := &egress.Dialer{Guard: guard}
	transport, err := egress.NewTransport(egress.TransportConfig{Dialer: dialer})
	if err != nil {
		return nil, err
	}
	return &live{
		fetcher: fetch.New(fetch.Config{
			Transport: transport, UserAgent: version.UserAgent(), Soft404: true,
			MaxSize: 2 * robotstxt.MaxSize, // lint tells where the rest begins that nobody reads
		}),
		reading: robotscache.Interpretation{Policy: fetch.DefaultPolicy()},
		entries: make(map[origin.Origin]*robotscache.Entry),
	}, nil
}

// Lookup implements enforce.Lookup.
func (l *live) Lookup(ctx context.Context, o origin.Origin) (*robotscache.Entry, robotscache.Source, error) {
	if e := l.entries[o]; e != nil {
		return e, robotscache.SourceHot, nil
	}
	out := l.fetcher.Fetch(ctx, o, nil)
	if err := ctx.Err(); err != nil {
		return nil, robotscache.SourceNone, err
	}
	if out.Refused() {
		return nil, robotscache.SourceNone, &robotscache.ForbiddenError{Cause: out.Cause, Detail: out.Detail}
	}
	e := robotscache.NewEntry(l.reading.Policy.Next(fetch.Record{Origin: o}, out, time.Now()), l.reading)
	l.entries[o] = e
	return e, robotscache.SourceFetch, nil
}

// came says what the fetch for an origin came to, where that is no robots.txt.
func (l *live) came(o origin.Origin) string {
	r := l.entries[o].Record()
	if r.State == fetch.StateUnknown || r.State == fetch.StateRules {
		return ""
	}
	s := fmt.Sprintf("%s: %s", o.RobotsURL(), withNote(r.State.String(), string(r.Cause)))
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

// fileRules is a robots.txt that stands for that of every site.
type fileRules struct {
	text      []byte
	indexHTML bool
}

// Lookup implements enforce.Lookup.
func (f fileRules) Lookup(_ context.Context, o origin.Origin) (*robotscache.Entry, robotscache.Source, error) {
	as := robotscache.Interpretation{Policy: fetch.DefaultPolicy(), IndexHTML: f.indexHTML}
	out := fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: f.text[:min(len(f.text), robotstxt.MaxSize)], Truncated: len(f.text) > robotstxt.MaxSize}
	now := time.Now()
	out.Started = now
	return robotscache.NewEntry(as.Policy.Next(fetch.Record{Origin: o}, out, now), as), robotscache.SourceNone, nil
}

// came says nothing: there was no fetch.
func (fileRules) came(origin.Origin) string { return "" }

// rules is where a command finds them.
type rules interface {
	enforce.Lookup
	came(o origin.Origin) string
}

// judgeBy decides by rules for the tokens of an agent.
func judgeBy(r rules, agent string, paths enforce.Paths) (judge, error) {
	identity, err := identityOf(agent)
	if err != nil {
		return nil, fmt.Errorf("--agent: %w", err)
	}
	policy, _, err := enforce.NewPolicy(enforce.PolicyConfig{Paths: paths}, time.Now())
	if err != nil {
		return nil, err
	}
	enforcer := enforce.New(enforce.Config{Rules: r, Policy: policy})
	_, isFile := r.(fileRules)
	return func(ctx context.Context, rawURL string) (judgement, error) {
		if isFile && strings.HasPrefix(rawURL, "/") {
			rawURL = "https://robots.invalid" + rawURL // RFC 6761: nobody's
		}
		u, err := url.Parse(rawURL)
		if err != nil {
			return judgement{}, err
		}
		target, err := origin.NewTarget(u)
		if err != nil {
			return judgement{}, err
		}
		d := enforcer.Decide(ctx, enforce.Request{Method: http.MethodGet, Target: target, Identity: identity})
		if err := ctx.Err(); err != nil {
			return judgement{}, err
		}
		if d.Reason.Hard() { // refused for the address, and so not fetched
			return judgement{d.Record(), rawURL + ": " + d.Detail}, nil
		}
		return judgement{d.Record(), r.came(target.Origin)}, nil
	}, nil
}

// identityOf is the identity of a crawler with the given product tokens, most specific first. One
// token by itself has its family behind it.
func identityOf(agent string) (enforce.Identity, error) {
	var config enforce.IdentifierConfig
	if tokens := strings.Split(agent, ","); len(tokens) > 1 {
		config.Agents = []enforce.Agent{{Name: tokens[0], Tokens: tokens}}
	}
	identifier, _, err := enforce.NewIdentifier(config)
	if err != nil {
		return enforce.Identity{}, err
	}
	identity, ok := identifier.Named(agentToken(agent))
	if !ok {
		return enforce.Identity{}, fmt.Errorf("%q is no product token: want a single word without version", agent)
	}
	return identity, nil
}

// agentToken is the first product token.
func agentToken(agent string) string {
	token, _, _ := strings.Cut(agent, ",")
	return token
}

// errTooLarge is a file that is no robots.txt.
var errTooLarge = errors.New("it is too large")

// maxRobots bounds what is read of a file: more than anybody reads of a robots.txt, so that lint
// can tell.
const maxRobots = 64 << 20

// readRobots reads a robots.txt from a file, or from in for "-".
func readRobots(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading robots.txt: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRobots+1))
	if err == nil && len(text) > maxRobots {
		err = errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("reading robots.txt from %s: %w", name, err)
	}
	return text, nil
}
