package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
)

// emptyRules reports for every origin that it has no robots.txt.
type emptyRules struct{}

func (emptyRules) Lookup(_ context.Context, o origin.Origin, _ robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	now := time.Now()
	r := fetch.Record{Origin: o, State: fetch.StateAbsent, Status: 404, FetchedAt: now, FreshUntil: now.Add(time.Hour)}
	return robotscache.NewEntry(r, robotscache.Interpretation{Policy: fetch.Policy{}.Complete()}), robotscache.SourceHot, nil
}

// TestBlindTunnelEndsAtItsBoundary checks that a blind tunnel ends exactly when the window of its
// agent closes, when the agent expires, and when a change removes its host. The rules play no part.
// The virtual time begins on 2000-01-01 at midnight.
func TestBlindTunnelEndsAtItsBoundary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		bounds enforce.Boundaries
		hosts  string // the file's text after an hour
		ends   time.Duration
	}{
		{"none", enforce.Boundaries{}, "", 0},
		{"a window", enforce.Boundaries{Windows: []string{"22:00-06:00"}}, "", 6 * time.Hour},
		{"two windows", enforce.Boundaries{Windows: []string{"22:00-06:00 UTC", "05:00-07:30 UTC"}}, "", 7*time.Hour + 30*time.Minute},
		{"always", enforce.Boundaries{Windows: []string{"00:00-12:00", "12:00-00:00"}}, "", 0},
		{"a last day", enforce.Boundaries{Expires: "2000-01-02"}, "", 24 * time.Hour},
		{"hosts without it", enforce.Boundaries{HostsFile: file}, "other.example\n", time.Hour},
		{"hosts with it", enforce.Boundaries{HostsFile: file}, "other.example\nsite.example\n", 0},
	} {
		write("site.example\n")
		synctest.Test(t, func(t *testing.T) {
			life, over := context.WithCancel(t.Context())
			defer over()
			id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "acme", Boundaries: tt.bounds}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := id.Follow(life, func(_ string, err error) {
				if err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			operator, _, err := enforce.NewPolicy(enforce.PolicyConfig{ConnectDefault: enforce.ConnectTunnel}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			site := &engine.SitePolicy{
				Life: life, Identifier: id, Operator: operator, Enforcer: &enforce.Enforcer{Rules: emptyRules{}, Policy: operator},
			}
			from := enforce.Sender{UserAgent: "acme/1", Source: netip.MustParseAddr("127.0.0.1")}
			o := origin.Origin{Scheme: "https", Host: "site.example", Port: 443}
			c := &connect{exchange: &exchange{identity: id.Opaque(life, from), target: origin.Target{Origin: o}}, opens: &tunnel{home: site, from: from}, relisted: id.Relisted()}
			if !c.stillAllowed(life, site) {
				t.Fatalf("%s: the tunnel would not be opened", tt.name)
			}
			site.Enforcer = &enforce.Enforcer{Policy: operator} // without rules, the enforcer would open no tunnel
			began := time.Now()
			ctx, end := context.WithCancelCause(life)
			go c.watch(ctx, end, false)
			time.Sleep(time.Hour)
			if tt.hosts != "" {
				write(tt.hosts)
			}
			select {
			case <-ctx.Done():
			case <-time.After(29 * time.Hour):
			}
			lasted := time.Since(began)
			if ended := ctx.Err() != nil; ended != (tt.ends > 0) || ended && (lasted < tt.ends || lasted > tt.ends+3*time.Second || !errors.Is(context.Cause(ctx), errBeyond)) {
				t.Errorf("%s: the tunnel lasted %s, cause %v; want %s", tt.name, lasted, context.Cause(ctx), tt.ends)
			}
			over()
			synctest.Wait()
		})
	}
}

// TestBlindTunnelEndsWithItsException checks that a blind tunnel that only an exception allows ends
// when the exception does, or is lifted. The time is virtual.
func TestBlindTunnelEndsWithItsException(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]time.Duration{"its end": 2 * time.Hour, "lifted": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			life, over := context.WithCancel(t.Context())
			defer over()
			id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "acme"}}})
			if err != nil {
				t.Fatal(err)
			}
			operator, _, err := enforce.NewPolicy(enforce.PolicyConfig{ConnectDefault: enforce.ConnectTunnel}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			orders, began := new(enforce.Stops), time.Now()
			order := enforce.Stop{
				Scope: enforce.StopAllow, Value: "acme@site.example", Until: began.Add(2 * time.Hour),
				ID: "1", By: "dora", Ticket: "OPS-1", At: began,
			}
			if err := orders.Set(order); err != nil {
				t.Fatal(err)
			}
			enforcer := &enforce.Enforcer{Policy: operator, Stops: orders, AllowFor: 24 * time.Hour} // nothing else allows: it has no rules
			site := &engine.SitePolicy{Life: life, Identifier: id, Operator: operator, Enforcer: enforcer}
			from := enforce.Sender{UserAgent: "acme/1", Source: netip.MustParseAddr("127.0.0.1")}
			o := origin.Origin{Scheme: "https", Host: "site.example", Port: 443}
			c := &connect{exchange: &exchange{identity: id.Opaque(life, from), target: origin.Target{Origin: o}}, opens: &tunnel{home: site, from: from}, relisted: id.Relisted()}
			ctx, end := context.WithCancelCause(life)
			go c.watch(ctx, end, enforcer.DecideTunnel(ctx, c.identity, o).Reason == enforce.ReasonException)
			time.Sleep(time.Hour - 1)
			if ctx.Err() != nil {
				t.Errorf("%s: the tunnel ended early: %v", name, context.Cause(ctx))
			}
			if name == "lifted" {
				if err := orders.Update(func(s enforce.StopSet) (enforce.StopSet, error) {
					s, _, _ = s.Lift(order, enforce.Lift{By: "dora", At: time.Now()})
					return s, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Hour):
			}
			if lasted := time.Since(began); lasted < ends || lasted > ends+exemptEvery || !errors.Is(context.Cause(ctx), errExceptionOver) {
				t.Errorf("%s: the tunnel lasted %s, cause %v; want %s", name, lasted, context.Cause(ctx), ends)
			}
			over()
			synctest.Wait()
		})
	}
}

// TestHoursEndWhileWaiting checks that a request whose turn comes after its agent's hours, or whose
// connection does, is refused, and that the next request gets its slot.
func TestHoursEndWhileWaiting(t *testing.T) {
	config := engine.Config{
		Store:      engine.Store{Kind: "none"},
		Limits:     engine.Limits{RequestsPerAgent: 1},
		Politeness: enforce.Politeness{Interval: time.Hour, Burst: 1, Per: []pace.Scope{pace.PerHost}},
	}
	config.Egress.Dialer = &egress.Dialer{Guard: new(guard.Guard)}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	e, err := engine.New(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if err := e.Open(); err != nil {
		t.Fatal(err)
	}
	operator, _, err := enforce.NewPolicy(enforce.PolicyConfig{Mode: enforce.ModeOff}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "acme", Boundaries: enforce.Boundaries{Windows: []string{"22:00-06:00"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	target, err := origin.ParseTarget("http://site.example/")
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	site := &Site{SitePolicy: &engine.SitePolicy{Engine: e, Enforcer: &enforce.Enforcer{Policy: operator, Now: func() time.Time { return now }}}}
	for _, tt := range []struct {
		wait, dial, retry time.Duration
		want              enforce.Reason
	}{
		{time.Second, 0, 16 * time.Hour, enforce.ReasonWindow},
		{0, time.Second, 16 * time.Hour, enforce.ReasonWindow},
		{0, time.Second - 1, 0, enforce.ReasonRobotsOff},
		{0, 0, time.Hour, enforce.ReasonRateLimited},
	} {
		now = time.Date(2027, 6, 1, 5, 59, 59, 0, time.UTC)
		x := &exchange{
			site: site, ctx: t.Context(), r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, target.String(), http.NoBody),
			identity: id.Identify(t.Context(), enforce.Sender{UserAgent: "acme/1"}),
		}
		x.target = target
		x.ctx, x.entry, err = e.EnterRequest(t.Context(), target.Origin, x.identity.StopName())
		if err != nil {
			t.Fatal(err)
		}
		if x.decide(); !x.decision.Allowed {
			t.Fatal(x.decision.Reason)
		}
		now = now.Add(tt.wait)
		refused := x.pace()
		if refused == nil {
			now = now.Add(tt.dial)
			server, client := net.Pipe()
			x.Connecting()
			x.Connected(client, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target.String(), http.NoBody))
			if refused = x.missed; refused != nil {
				x.slot.Cancel() // as forward does
			}
			if ended := x.ctx.Err() != nil; ended != (refused != nil) || ended != x.sentAt.IsZero() {
				t.Errorf("after %s and %s: the context ended: %t, sent at %s", tt.wait, tt.dial, ended, x.sentAt)
			}
			_ = server.Close()
		}
		if refused != nil {
			x.decision = x.decision.RefuseSlot(t.Context(), refused)
		}
		x.entry.Leave()
		if d := x.decision; d.Reason != tt.want || d.Allowed != tt.want.Allows() || d.RetryAfter.Round(time.Minute) != tt.retry {
			t.Errorf("after %s and %s: reason %s (%s), Retry-After %s", tt.wait, tt.dial, d.Reason, d.Detail, d.RetryAfter)
		}
	}
}
