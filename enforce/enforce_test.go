package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

const robots = `User-agent: *
Disallow: /private
Allow: /private/open
Crawl-delay: 2

User-agent: FreeBot
Disallow:
`

func ask(t *testing.T, e *Enforcer, id Identity, url string) Decision {
	t.Helper()
	scheme, rest, _ := strings.Cut(url, "://")
	host, path, _ := strings.Cut(rest, "/")
	return e.Decide(t.Context(), Request{http.MethodGet, origin.Target{Origin: mustOrigin(t, scheme+"://"+host), Path: "/" + path}, id})
}

func TestDecideByRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		record fetch.Record
		policy fetch.Policy
		agent  string
		path   string
		want   Decision // the fields that are compared below
	}{
		{"RFC 9309 2.2.2 disallow", rules(robots), defaults, "AnyBot/1.0", "/private/x", Decision{Reason: ReasonDisallowed, Group: "*", Rule: "/private", Line: 2, CrawlDelay: 2 * time.Second}},
		{"RFC 9309 2.2.2 longest allow", rules(robots), defaults, "AnyBot/1.0", "/private/open/x", Decision{Allowed: true, Reason: ReasonAllowedByRule, Group: "*", Rule: "/private/open", Line: 3, CrawlDelay: 2 * time.Second}},
		{"RFC 9309 2.2.2 no rule", rules(robots), defaults, "AnyBot/1.0", "/", Decision{Allowed: true, Reason: ReasonNoRule, Group: "*", CrawlDelay: 2 * time.Second}},
		{"RFC 9309 2.2.1 own group, no delay of *", rules(robots), defaults, "freebot/2", "/private/x", Decision{Allowed: true, Reason: ReasonNoRule, Group: "FreeBot"}},
		{"RFC 9309 2.2.1 no token: *", rules(robots), defaults, "", "/private", Decision{Reason: ReasonDisallowed, Group: "*", Rule: "/private", Line: 2, CrawlDelay: 2 * time.Second}},
		{"empty file", rules(""), defaults, "AnyBot", "/x", Decision{Allowed: true, Reason: ReasonNoRule}},
		{"RFC 9309 2.3.1.3 absent", absent(404), defaults, "AnyBot", "/x", Decision{Allowed: true, Reason: ReasonAbsent}},
		{"forbidden, as absent", absent(403), defaults, "AnyBot", "/x", Decision{Allowed: true, Reason: ReasonAbsent}},
		{"forbidden disallow", absent(403), fetch.Policy{ForbiddenDisallow: true}, "AnyBot", "/x", Decision{Reason: ReasonRobotsForbidden, RetryAfter: time.Hour}},
		{"RFC 9309 2.3.1.4 unreachable", unreachable(time.Hour, robots), defaults, "FreeBot", "/x", Decision{Reason: ReasonUnreachable, RetryAfter: 4 * time.Minute}},
		{"RFC 9309 2.3.1.4 after 30 days, last good copy", unreachable(31*24*time.Hour, robots), defaults, "AnyBot", "/private", Decision{Reason: ReasonDisallowed, Group: "*", Rule: "/private", Line: 2, CrawlDelay: 2 * time.Second}},
		{"RFC 9309 2.3.1.4 after 30 days, none", unreachable(31*24*time.Hour, ""), defaults, "AnyBot", "/private", Decision{Allowed: true, Reason: ReasonUnreachableExpired}},
		{"unreachable stale", unreachable(time.Hour, robots), fetch.Policy{Mode: fetch.ModeStale}, "AnyBot", "/", Decision{Allowed: true, Reason: ReasonNoRule, Group: "*", CrawlDelay: 2 * time.Second}},
		{"unreachable strict", unreachable(90*24*time.Hour, robots), fetch.Policy{Mode: fetch.ModeStrict}, "AnyBot", "/", Decision{Reason: ReasonUnreachable, RetryAfter: 4 * time.Minute}},
		{"nothing known", fetch.Record{}, defaults, "AnyBot", "/", Decision{Reason: ReasonUnreachable, RetryAfter: time.Minute}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := siteOf(tt.record, tt.policy)
			got := ask(t, newEnforcer(s, nil, nil), crawler(t, tt.agent), "http://example.com"+tt.path)
			w := tt.want
			if got.Allowed != w.Allowed || got.Reason != w.Reason || got.Group != w.Group || got.Rule != w.Rule ||
				got.Line != w.Line || got.CrawlDelay != w.CrawlDelay || got.RetryAfter != w.RetryAfter || got.WouldDeny {
				t.Errorf("got  %+v\nwant %+v", got, w)
			}
			if got.State != tt.record.State || got.Cause != tt.record.Cause || got.Source != robotscache.SourceHot ||
				!got.PathVisible || got.Record().RobotsURL != "http://example.com/robots.txt" || got.UserAgent != tt.agent {
				t.Errorf("evidence: %+v", got)
			}
			if s.origin != got.Origin {
				t.Errorf("the lookup was for %s, want %s", s.origin, got.Origin)
			}
		})
	}
}

func TestDecideDatesAndHashes(t *testing.T) {
	t.Parallel()
	r := rules(robots)
	d := ask(t, newEnforcer(siteOf(r, defaults), nil, nil), crawler(t, "A"), "https://example.com:8443/")
	if d.SHA256 != r.SHA256 || d.Age != 5*time.Minute || !d.FetchedAt.Equal(r.FetchedAt) || !d.FreshUntil.Equal(r.FreshUntil) {
		t.Errorf("got %+v, want the times and the hash of %+v", d, r)
	}
	// A clock that was set back must not make the age negative.
	r.FetchedAt = now.Add(time.Second)
	if d := ask(t, newEnforcer(siteOf(r, defaults), nil, nil), crawler(t, "A"), "http://example.com/"); d.Age != 0 {
		t.Errorf("age %s, want 0", d.Age)
	}
}

func TestDecideRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		next time.Time
		want time.Duration
	}{
		{now.Add(90 * time.Second), 90 * time.Second},
		{now.Add(time.Millisecond), time.Second},
		{now, 5 * time.Second},
		{now.Add(-time.Hour), 5 * time.Second},
		{time.Time{}, time.Minute},
	} {
		r := unreachable(time.Hour, "")
		r.NextAttempt = tt.next
		if d := ask(t, newEnforcer(siteOf(r, defaults), nil, nil), crawler(t, "A"), "http://example.com/"); d.RetryAfter != tt.want {
			t.Errorf("next attempt at %s: Retry-After %s, want %s", tt.next, d.RetryAfter, tt.want)
		}
	}
}

func TestDecideLookupFails(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		err     error
		want    Reason
		outcome string
		retry   time.Duration
	}{
		{"pending", t.Context(), fmt.Errorf("waiting: %w", robotscache.ErrPending), ReasonPending, "deny", 5 * time.Second},
		{
			"forbidden", t.Context(), &robotscache.ForbiddenError{Cause: fetch.CauseForbiddenAddress, Detail: "address 10.0.0.1:80 is not public"},
			ReasonForbiddenAddress, "deny", 0,
		},
		{"forbidden port", t.Context(), &robotscache.ForbiddenError{Cause: fetch.CauseForbiddenPort}, ReasonForbiddenPort, "deny", 0},
		{"own listener", t.Context(), &robotscache.ForbiddenError{Cause: fetch.CauseOwnListener}, ReasonOwnListener, "deny", 0},
		{"pending and gone", gone, robotscache.ErrPending, ReasonPending, "deny", 5 * time.Second},
		{"gone", gone, context.Canceled, ReasonCanceled, "error", 0},
		{"someone else's cancel", t.Context(), context.Canceled, ReasonInternal, "error", 0},
		{"closed", t.Context(), robotscache.ErrClosed, ReasonInternal, "error", 0},
		{"fault", t.Context(), errors.New("disk on fire"), ReasonInternal, "error", 0},
	} {
		for _, mode := range []Mode{ModeEnforce, ModeReport} {
			e := newEnforcer(&site{err: tt.err}, mustPolicy(t, PolicyConfig{Mode: mode}), nil)
			target := origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/"}
			for kind, d := range map[string]Decision{
				"request": e.Decide(tt.ctx, Request{http.MethodGet, target, crawler(t, "A")}),
				"tunnel": newEnforcer(&site{err: tt.err}, mustPolicy(t, PolicyConfig{Mode: mode, ConnectDefault: ConnectTunnel}), nil).
					DecideTunnel(tt.ctx, crawler(t, "A"), target.Origin),
			} {
				spared := mode == ModeReport && tt.want == ReasonPending
				if d.Reason != tt.want || d.WouldDeny != spared || d.Allowed != spared || d.RetryAfter != tt.retry {
					t.Errorf("%s, mode %s, %s: %+v", tt.name, mode, kind, d)
				}
				if !spared && d.Outcome() != tt.outcome {
					t.Errorf("%s: outcome %s, want %s", tt.name, d.Outcome(), tt.outcome)
				}
			}
		}
	}
}

// RFC 9309 section 2.2.2: "The /robots.txt URI is implicitly allowed." This means exactly these
// bytes.
func TestRFC9309_2_2_2_RobotsTxtItself(t *testing.T) {
	t.Parallel()
	closed := rules("User-agent: *\nDisallow: /\n")
	for path, itself := range map[string]bool{
		"/robots.txt": true, "/robots.txt?": false, "/robots.txt?x": false, "/ROBOTS.TXT": false, "/robots%2Etxt": false,
		"/robots.txt/": false, "//robots.txt": false, "/a/../robots.txt": false, "/robots.txt2": false,
	} {
		s := siteOf(closed, defaults)
		d := ask(t, newEnforcer(s, nil, nil), crawler(t, "A"), "http://example.com"+path)
		if itself != (d.Allowed && d.Reason == ReasonRobotsTxt && !d.Paced() && s.lookups == 0) {
			t.Errorf("%s: allowed %t %s, paced %t, %d look-ups", path, d.Allowed, d.Reason, d.Paced(), s.lookups)
		}
		// The rules decide an equivalent spelling (RFC 3986 section 6.2.2.2), and allow it too.
		if want := itself || path == "/robots%2Etxt"; want != d.Allowed {
			t.Errorf("%s: allowed %t", path, d.Allowed)
		}
	}
	// Only reading is allowed. The rules decide other methods.
	for method, want := range map[string]Reason{
		"GET": ReasonRobotsTxt, "HEAD": ReasonRobotsTxt, "POST": ReasonDisallowed, "DELETE": ReasonDisallowed,
		"OPTIONS": ReasonDisallowed, "get": ReasonDisallowed, "": ReasonDisallowed,
	} {
		target := origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/robots.txt"}
		d := newEnforcer(siteOf(closed, defaults), nil, nil).Decide(t.Context(), Request{method, target, crawler(t, "A")})
		if d.Reason != want || d.Paced() {
			t.Errorf("%q: reason %s, paced %t, want %s", method, d.Reason, d.Paced(), want)
		}
		target.Path = "/robots%2Etxt"
		d = newEnforcer(siteOf(closed, defaults), nil, nil).Decide(t.Context(), Request{method, target, crawler(t, "A")})
		if d.Allowed != (want == ReasonRobotsTxt) {
			t.Errorf("%q of %s: %s", method, target.Path, d.Reason)
		}
	}
	// It needs neither a reachable site nor a mode, but a sender that is denied the host is denied
	// it too.
	for name, tt := range map[string]struct {
		e    *Enforcer
		id   Identity
		want Reason
	}{
		"unreachable": {newEnforcer(siteOf(unreachable(time.Hour, ""), defaults), nil, nil), crawler(t, "A"), ReasonRobotsTxt},
		"off":         {newEnforcer(nil, mustPolicy(t, PolicyConfig{Mode: ModeOff}), nil), crawler(t, "A"), ReasonRobotsTxt},
		"denied":      {newEnforcer(nil, mustPolicy(t, PolicyConfig{Deny: []string{"*"}}), nil), crawler(t, "A"), ReasonOperatorDeny},
		"nobody":      {newEnforcer(nil, nil, nil), Identity{}, ReasonRobotsTxt},
		"stopped":     {newEnforcer(nil, nil, stopAll(t)), Identity{}, ReasonKillSwitch},
	} {
		if d := ask(t, tt.e, tt.id, "http://example.com/robots.txt"); d.Reason != tt.want || d.Allowed != tt.want.Allows() {
			t.Errorf("%s: allowed %t %s", name, d.Allowed, d.Reason)
		}
	}
	// In report mode it passes, still without pacing.
	report := newEnforcer(nil, mustPolicy(t, PolicyConfig{Mode: ModeReport}), nil)
	if d := ask(t, report, Identity{acceptance: acceptance{refusal: ReasonCredentialsMissing}}, "http://example.com/robots.txt"); !d.WouldDeny || d.Paced() {
		t.Errorf("mode report: %+v", d)
	}
}

// robots.txt is refused only for missing credentials. Everything else is refused as before.
func TestRobotsTxtForWhoeverAsks(t *testing.T) {
	t.Parallel()
	for _, r := range Reasons() {
		identity := Identity{acceptance: acceptance{refusal: r}}
		want := ReasonRobotsTxt
		switch r {
		case ReasonCredentialsMissing, ReasonCredentialsWrong:
			want = r
		case ReasonUnidentified, ReasonAgentMismatch, ReasonUserAgentConflict, ReasonAmbiguousAgent:
		default:
			continue // no identity has this reason
		}
		e := newEnforcer(siteOf(rules(robots), defaults), nil, nil)
		if d := ask(t, e, identity, "http://example.com/robots.txt"); d.Reason != want || d.Paced() {
			t.Errorf("%s: reason %s, paced %t, want %s", r, d.Reason, d.Paced(), want)
		}
		for _, refused := range []Request{
			{http.MethodPost, origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/robots.txt"}, identity},
			{http.MethodGet, origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/robots%2Etxt"}, identity},
			{http.MethodGet, origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/"}, identity},
		} {
			if d := e.Decide(t.Context(), refused); d.Reason != r {
				t.Errorf("%s of %s: %s, want %s", refused.Method, refused.Target.Path, d.Reason, r)
			}
		}
	}
}

func stopAll(t *testing.T) *Stops {
	t.Helper()
	k := new(Stops)
	if err := k.Set(Stop{Scope: StopAll, By: "eve", Reason: "fire", At: now}); err != nil {
		t.Fatal(err)
	}
	return k
}

// docs/architecture.md: identity, then stops, operator's deny list, robots.txt itself, mode off,
// exceptions, rules. Each row switches the earlier steps off one by one.
func TestOrderOfSteps(t *testing.T) {
	t.Parallel()
	closed := rules("User-agent: *\nDisallow: /\n")
	deny, exempt := []string{"example.com"}, []Exception{{Hosts: []string{"example.com"}, Reason: "why"}}
	for _, tt := range []struct {
		name   string
		id     Identity
		stops  *Stops
		policy PolicyConfig
		want   Reason
		asks   int
	}{
		{"everything against it", Identity{}, stopAll(t), PolicyConfig{Deny: deny, Exceptions: exempt}, ReasonUnidentified, 0},
		{"identified", crawler(t, "A"), stopAll(t), PolicyConfig{Deny: deny, Exceptions: exempt}, ReasonKillSwitch, 0},
		{"stop before mode off", crawler(t, "A"), stopAll(t), PolicyConfig{Mode: ModeOff}, ReasonKillSwitch, 0},
		{"not stopped", crawler(t, "A"), nil, PolicyConfig{Deny: deny, Exceptions: exempt}, ReasonOperatorDeny, 0},
		{"deny list before mode off", crawler(t, "A"), nil, PolicyConfig{Mode: ModeOff, Deny: deny}, ReasonOperatorDeny, 0},
		{"not denied", crawler(t, "A"), nil, PolicyConfig{Exceptions: exempt}, ReasonException, 0},
		{"mode off before exceptions", crawler(t, "A"), nil, PolicyConfig{Mode: ModeOff, Exceptions: exempt}, ReasonRobotsOff, 0},
		{"mode off does not identify", Identity{}, nil, PolicyConfig{Mode: ModeOff}, ReasonUnidentified, 0},
		{"no exception", crawler(t, "A"), nil, PolicyConfig{}, ReasonDisallowed, 1},
	} {
		s := siteOf(closed, defaults)
		d := ask(t, newEnforcer(s, mustPolicy(t, tt.policy), tt.stops), tt.id, "http://example.com/x")
		if d.Reason != tt.want || d.Allowed != tt.want.Allows() || s.lookups != tt.asks {
			t.Errorf("%s: allowed %t %s, %d look-ups", tt.name, d.Allowed, d.Reason, s.lookups)
		}
		if want := "example.com: why"; tt.want == ReasonException && d.Exception != want || tt.want != ReasonException && d.Exception != "" {
			t.Errorf("%s: exception %q", tt.name, d.Exception)
		}
	}
}

// RFC 1738 section 3.2.2 only has ways to read, in every mode.
func TestMethodsOfFTP(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeEnforce, ModeReport, ModeOff} {
		for method, want := range map[string]bool{"GET": true, "HEAD": true, "PUT": false, "POST": false, "OPTIONS": false, "": false} {
			s := siteOf(rules("User-agent: *\nDisallow:\n"), defaults)
			e := newEnforcer(s, mustPolicy(t, PolicyConfig{Mode: mode}), nil)
			target := origin.Target{Origin: mustOrigin(t, "ftp://example.com"), Path: "/x"}
			d := e.Decide(t.Context(), Request{Method: method, Target: target, Identity: crawler(t, "A")})
			if d.Allowed != want || !want && (d.Reason != ReasonMethod || s.lookups > 0) {
				t.Errorf("%s %q: allowed %t %s, %d look-ups", mode, method, d.Allowed, d.Reason, s.lookups)
			}
		}
	}
}

// Mode report records the first refusal and its evidence, and lets the request pass unless the
// refusal is hard.
func TestModeReport(t *testing.T) {
	t.Parallel()
	wrong := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "a", Credentials: []string{"u"}}, {Name: "b"}}})
	wrongPassword := wrong.Identify(t.Context(), Sender{ProxyAuthorization: basic("u", "x")})
	spoofed := wrong.Identify(t.Context(), Sender{ProxyAuthorization: basic("u", "pw-u"), UserAgent: "b"})
	for _, tt := range []struct {
		name   string
		record fetch.Record
		id     Identity
		stops  *Stops
		policy PolicyConfig
		want   Reason
		passes bool
		line   int
	}{
		{"disallowed", rules(robots), crawler(t, "A"), nil, PolicyConfig{}, ReasonDisallowed, true, 2},
		{"unreachable", unreachable(time.Hour, ""), crawler(t, "A"), nil, PolicyConfig{}, ReasonUnreachable, true, 0},
		{"unidentified", rules(robots), Identity{}, nil, PolicyConfig{}, ReasonUnidentified, true, 2},
		{"unidentified, then allowed", absent(404), Identity{}, nil, PolicyConfig{}, ReasonUnidentified, true, 0},
		{"unidentified, then excepted", rules(robots), Identity{}, nil, PolicyConfig{Exceptions: []Exception{{Hosts: []string{"*"}, Reason: "x"}}}, ReasonUnidentified, true, 0},
		{"spoofed", rules(robots), spoofed, nil, PolicyConfig{}, ReasonUserAgentConflict, true, 2},
		{"wrong password", rules(robots), wrongPassword, nil, PolicyConfig{}, ReasonCredentialsWrong, false, 0},
		{"stop", rules(robots), crawler(t, "A"), stopAll(t), PolicyConfig{}, ReasonKillSwitch, false, 0},
		{"unidentified, stop", rules(robots), Identity{}, stopAll(t), PolicyConfig{}, ReasonKillSwitch, false, 0},
		{"denied", rules(robots), crawler(t, "A"), nil, PolicyConfig{Deny: []string{"*"}}, ReasonOperatorDeny, false, 0},
	} {
		tt.policy.Mode = ModeReport
		d := ask(t, newEnforcer(siteOf(tt.record, defaults), mustPolicy(t, tt.policy), tt.stops), tt.id, "http://example.com/private/x")
		if d.Reason != tt.want || d.Allowed != tt.passes || d.WouldDeny != tt.passes || d.Line != tt.line || d.Mode != ModeReport {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
}

func TestDecideTunnel(t *testing.T) {
	t.Parallel()
	tunnels := PolicyConfig{ConnectDefault: ConnectTunnel}
	path := PolicyConfig{ConnectDefault: ConnectTunnel, Exceptions: []Exception{{Hosts: []string{"*"}, Paths: []string{"/"}, Reason: "x"}}}
	whole := PolicyConfig{ConnectDefault: ConnectTunnel, Exceptions: []Exception{{Hosts: []string{"*"}, Reason: "x"}}}
	for _, tt := range []struct {
		name   string
		record fetch.Record
		agent  string
		policy PolicyConfig
		want   Reason
		group  string
		asks   int
	}{
		{"restricted", rules(robots), "AnyBot", tunnels, ReasonTunnelRestricted, "*", 1},
		{"unrestricted", rules(robots), "FreeBot", tunnels, ReasonUnrestricted, "FreeBot", 1},
		{"no User-Agent: *", rules(robots), "", tunnels, ReasonTunnelRestricted, "*", 1},
		{"empty file", rules(""), "AnyBot", tunnels, ReasonUnrestricted, "", 1},
		{"absent", absent(404), "AnyBot", tunnels, ReasonAbsent, "", 1},
		{"unreachable", unreachable(time.Hour, robots), "AnyBot", tunnels, ReasonUnreachable, "", 1},
		{"unreachable for 30 days", unreachable(31*24*time.Hour, ""), "AnyBot", tunnels, ReasonUnreachableExpired, "", 1},
		{"exception for a path", rules(robots), "AnyBot", path, ReasonTunnelRestricted, "*", 1},
		{"exception for the host", rules(robots), "AnyBot", whole, ReasonException, "", 0},
		{"connect deny", absent(404), "AnyBot", PolicyConfig{}, ReasonConnectDenied, "", 0},
		{"connect deny, off", absent(404), "AnyBot", PolicyConfig{Mode: ModeOff}, ReasonConnectDenied, "", 0},
		{"connect deny, report", absent(404), "AnyBot", PolicyConfig{Mode: ModeReport}, ReasonConnectDenied, "", 0},
		{"off", rules(robots), "AnyBot", PolicyConfig{Mode: ModeOff, ConnectDefault: ConnectTunnel}, ReasonRobotsOff, "", 0},
		{"denied", absent(404), "AnyBot", PolicyConfig{Deny: []string{"*"}, ConnectDefault: ConnectTunnel}, ReasonOperatorDeny, "", 0},
		{"would be intercepted", rules(robots), "AnyBot", PolicyConfig{ConnectDefault: ConnectIntercept}, ReasonTunnelRestricted, "*", 1},
	} {
		s := siteOf(tt.record, defaults)
		d := newEnforcer(s, mustPolicy(t, tt.policy), nil).DecideTunnel(t.Context(), crawler(t, tt.agent), mustOrigin(t, "https://example.com"))
		if d.Reason != tt.want || d.Allowed != tt.want.Allows() || d.PathVisible || d.Group != tt.group || s.lookups != tt.asks {
			t.Errorf("%s: blind: %d lookups, %+v", tt.name, s.lookups, d)
		}
		opening := tt.want // without a lookup the opening decides
		if tt.asks > 0 {
			opening = ReasonIntercepted
		}
		d = newEnforcer(s, mustPolicy(t, tt.policy), nil).DecideOpening(crawler(t, tt.agent), mustOrigin(t, "https://example.com"))
		if d.Reason != opening || d.Allowed != opening.Allows() || d.PathVisible != (tt.asks > 0) || s.lookups != tt.asks {
			t.Errorf("%s: opening: %d lookups, %+v", tt.name, s.lookups, d)
		}
		d = newEnforcer(s, mustPolicy(t, tt.policy), nil).DecidePlain(crawler(t, tt.agent), mustOrigin(t, "https://example.com"))
		if d.Reason != ReasonIntercepted || !d.Allowed || d.WouldDeny || !d.PathVisible || d.Agent != tt.agent || s.lookups != tt.asks {
			t.Errorf("%s: plain HTTP: %d lookups, %+v", tt.name, s.lookups, d)
		}
	}
	report := PolicyConfig{Mode: ModeReport, ConnectDefault: ConnectTunnel}
	d := newEnforcer(siteOf(rules(robots), defaults), mustPolicy(t, report), nil).
		DecideTunnel(t.Context(), crawler(t, "A"), mustOrigin(t, "https://example.com"))
	if !d.Allowed || !d.WouldDeny || d.Reason != ReasonTunnelRestricted || !d.Paced() {
		t.Errorf("mode report: %+v", d)
	}
}

// Only credentials can refuse a CONNECT that will be intercepted.
func TestDecideIntercept(t *testing.T) {
	t.Parallel()
	id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "a", Credentials: []string{"u"}}}})
	everything := PolicyConfig{Deny: []string{"*"}}
	o := mustOrigin(t, "https://example.com")
	for _, tt := range []struct {
		name string
		e    Sender
		mode Mode
		want Reason
	}{
		{"right", Sender{ProxyAuthorization: basic("u", "pw-u")}, ModeEnforce, ReasonIntercepted},
		{"missing", Sender{}, ModeEnforce, ReasonCredentialsMissing},
		{"missing, report", Sender{}, ModeReport, ReasonCredentialsMissing},
		{"missing, off", Sender{}, ModeOff, ReasonCredentialsMissing},
		{"wrong", Sender{ProxyAuthorization: basic("u", "x")}, ModeEnforce, ReasonCredentialsWrong},
		{"wrong, report", Sender{ProxyAuthorization: basic("u", "x")}, ModeReport, ReasonCredentialsWrong},
	} {
		everything.Mode = tt.mode
		e := newEnforcer(nil, mustPolicy(t, everything), stopAll(t))
		tunnel := id.AuthenticateTunnel(t.Context(), tt.e)
		d := e.DecideIntercept(tunnel, o)
		spared := tt.name == "missing, report"
		if d.Reason != tt.want || d.Allowed != (tt.want.Allows() || spared) || d.WouldDeny != spared || !d.PathVisible {
			t.Errorf("%s: %+v", tt.name, d)
		}
		if spared { // requests inside pass too, and do not count as unidentified
			if r, _, _ := id.Inner(tunnel, "a").Refused(); r != ReasonCredentialsMissing {
				t.Errorf("the request inside has the reason %q, want credentials_missing", r)
			}
		}
	}
}

func TestStopKnowsTheNameless(t *testing.T) {
	t.Parallel()
	k := new(Stops)
	if err := k.Set(Stop{Scope: StopAgent, Value: "badbot", Reason: "complaint"}); err != nil {
		t.Fatal(err)
	}
	open := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "a"}}, AllowUnidentified: true})
	for _, id := range []Identity{crawler(t, "BadBot/1"), open.Identify(t.Context(), Sender{UserAgent: "BadBot/1"})} {
		d := ask(t, newEnforcer(siteOf(absent(404), defaults), nil, k), id, "http://example.com/")
		if d.Reason != ReasonKillSwitch || d.Detail != "stopped: agent badbot, because: complaint" {
			t.Errorf("%q: reason %s, detail %q, want a stop", id.Agent, d.Reason, d.Detail)
		}
	}
}

// A configured agent finds its group by its tokens, in their order, and ignores * if its block says
// so.
func TestDecideForConfiguredAgents(t *testing.T) {
	t.Parallel()
	file := rules("User-agent: Acme\nDisallow: /acme\n\nUser-agent: *\nDisallow: /star\n")
	id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{
		{Name: "news", Tokens: []string{"AcmeNews", "Acme"}},
		{Name: "ads", Tokens: []string{"AcmeAds"}, IgnoreWildcard: true},
		{Name: "Plain"},
	}})
	for _, tt := range []struct {
		field, path string
		want        Reason
		group       string
	}{
		{"AcmeNews/1", "/acme", ReasonDisallowed, "Acme"},
		{"AcmeNews/1", "/star", ReasonNoRule, "Acme"},
		{"AcmeAds/1", "/star", ReasonNoRule, ""},
		{"Plain/1", "/star", ReasonDisallowed, "*"},
	} {
		d := ask(t, newEnforcer(siteOf(file, defaults), nil, nil), id.Identify(t.Context(), Sender{UserAgent: tt.field}), "http://example.com"+tt.path)
		if d.Reason != tt.want || d.Group != tt.group {
			t.Errorf("%s %s: reason %s by group %q, want %s by %q", tt.field, tt.path, d.Reason, d.Group, tt.want, tt.group)
		}
	}
	if d := ask(t, newEnforcer(siteOf(file, defaults), nil, nil), id.Identify(t.Context(), Sender{UserAgent: "AcmeNews"}), "http://example.com/"); d.Agent != "news" ||
		d.IdentifiedBy != "user_agent" || !slices.Equal(d.Tokens, []string{"AcmeNews", "Acme"}) {
		t.Errorf("identity: %+v", d)
	}
}

// TestRefuseExcess checks that the refusal of an agent with too many requests under way has the
// same facts as any other.
func TestRefuseExcess(t *testing.T) {
	t.Parallel()
	o := origin.Origin{Scheme: "http", Host: "www.example.com", Port: 80}
	id := Identity{
		Agent: "news", IdentifiedBy: "user_agent", UserAgent: "News/1.0", Robots: robotstxt.Agent{Tokens: []string{"News"}},
		Config: &Agent{Name: "news", Owner: "team news", Contact: "news@acme.example"},
	}
	d := newEnforcer(nil, new(Policy), nil).RefuseExcess(id, o, "7 requests are under way")
	r := d.Record()
	if d.Allowed || r.Reason != ReasonAgentLimit || r.Detail != "7 requests are under way" || d.RetryAfter != 5*time.Second {
		t.Errorf("decision %+v", d)
	}
	if r.Agent != "news" || r.Owner != "team news" || r.Contact != "news@acme.example" || r.UserAgent != "News/1.0" || r.RobotsURL != o.RobotsURL() {
		t.Errorf("record %+v", r)
	}
}
