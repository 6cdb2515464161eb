package enforce

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// now is the time in all tests.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func mustOrigin(tb testing.TB, rawURL string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func prefixes(tb testing.TB, list ...string) (out []netip.Prefix) {
	tb.Helper()
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// verifier accepts one password for each user.
func verifier(_ context.Context, _ netip.Addr, user, password string) PasswordCheck {
	if password == "pw-"+user {
		return PasswordRight
	}
	return PasswordWrong
}

func mustIdentifier(tb testing.TB, cfg IdentifierConfig) *Identifier {
	tb.Helper()
	if cfg.Verify == nil {
		cfg.Verify = verifier
	}
	id, _, err := NewIdentifier(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func mustPolicy(tb testing.TB, cfg PolicyConfig) *Policy {
	tb.Helper()
	p, _, err := NewPolicy(cfg, now)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// rules returns the record of a site with this robots.txt, fetched five minutes ago.
func rules(body string) fetch.Record {
	return fetch.Record{
		State: fetch.StateRules, Body: []byte(body), SHA256: sha256.Sum256([]byte(body)), Status: 200,
		FetchedAt: now.Add(-5 * time.Minute), FreshUntil: now.Add(time.Hour),
	}
}

// absent returns the record of a site that answers with the status, a 4xx.
func absent(status int) fetch.Record {
	return fetch.Record{
		State: fetch.StateAbsent, Cause: fetch.CauseStatus, Status: status,
		FetchedAt: now.Add(-5 * time.Minute), FreshUntil: now.Add(time.Hour),
	}
}

// unreachable returns the record of a site that has been unreachable for that time.
func unreachable(since time.Duration, lastGood string) fetch.Record {
	r := fetch.Record{
		State: fetch.StateUnreachable, Cause: fetch.CauseTimeout,
		FetchedAt: now.Add(-time.Minute), UnreachableSince: now.Add(-since),
		Attempts: 3, NextAttempt: now.Add(4 * time.Minute),
	}
	if lastGood != "" {
		r.LastGood = &fetch.Copy{Body: []byte(lastGood), SHA256: sha256.Sum256([]byte(lastGood)), FetchedAt: now.Add(-since)}
	}
	return r
}

// site gives every lookup the same answer and records the lookups.
type site struct {
	entry   *robotscache.Entry
	source  robotscache.Source
	err     error
	lookups int
	origin  origin.Origin
}

func (s *site) Lookup(_ context.Context, o origin.Origin, _ robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	s.lookups++
	s.origin = o
	return s.entry, s.source, s.err
}

func siteOf(r fetch.Record, p fetch.Policy) *site {
	return &site{entry: robotscache.NewEntry(r, robotscache.Interpretation{Policy: p}), source: robotscache.SourceHot}
}

func newEnforcer(rules Lookup, p *Policy, k *Stops) *Enforcer {
	return &Enforcer{Rules: rules, Policy: p, Stops: k, Now: func() time.Time { return now }}
}

// crawler returns the identity of a crawler without configuration.
func crawler(tb testing.TB, userAgent string) Identity {
	tb.Helper()
	return mustIdentifier(tb, IdentifierConfig{AllowUnidentified: true}).Identify(tb.Context(), Sender{UserAgent: userAgent})
}

var defaults = fetch.Policy{}.Complete()
