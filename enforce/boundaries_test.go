package enforce

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// limited returns an enforcer at the given time whose only agent, acme, has boundaries.
func limited(tb testing.TB, robots string, b Boundaries, at time.Time, mode Mode) (*Enforcer, *site, Identity) {
	tb.Helper()
	if at.IsZero() {
		at = now
	}
	record := rules(robots)
	record.FetchedAt, record.FreshUntil = at.Add(-time.Minute), at.Add(time.Hour)
	s := siteOf(record, defaults)
	e := newEnforcer(s, mustPolicy(tb, PolicyConfig{Mode: mode, ConnectDefault: ConnectTunnel}), nil)
	e.Now = func() time.Time { return at }
	return e, s, acmeWith(tb, b)
}

func acmeWith(tb testing.TB, b Boundaries) Identity {
	tb.Helper()
	id := mustIdentifier(tb, IdentifierConfig{Agents: []Agent{{Name: "acme", Boundaries: b}}})
	return id.Identify(tb.Context(), Sender{UserAgent: "acme/1.0"})
}

// TestBoundaries checks that requests outside a boundary are refused in every mode, even for
// robots.txt, and without a lookup of rules. Requests inside it pass.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	hosts := Boundaries{Hosts: []string{"*.example.com", "shop.example", "alt.example:8443"}}
	ports := Boundaries{Ports: [][2]uint16{{443, 443}, {8000, 8099}}}
	methods := Boundaries{Methods: []string{"GET", "HEAD"}}
	for _, tt := range []struct {
		bounds      Boundaries
		method, url string
		want        Reason // "" if the request passes
	}{
		{Boundaries{}, "DELETE", "http://any.example:1/x", ""},
		{hosts, "GET", "https://www.example.com/x", ""},
		{hosts, "GET", "http://a.b.example.com:8080/x", ""},
		{hosts, "GET", "https://example.com/x", ReasonAgentHost},
		{hosts, "GET", "https://shop.example/x", ""},
		{hosts, "GET", "https://SHOP.example./x", ""},
		{hosts, "GET", "https://www.shop.example/x", ReasonAgentHost},
		{hosts, "GET", "https://alt.example:8443/x", ""},
		{hosts, "GET", "https://alt.example/x", ReasonAgentHost},
		{hosts, "GET", "https://other.example/robots.txt", ReasonAgentHost},
		{hosts, "GET", "ftp://other.example/x", ReasonAgentHost},
		{hosts, "GET", "http://crawlgate.invalid./x", ReasonAgentHost}, // the gateway does not answer for this name
		{Boundaries{HostsFile: "not read"}, "GET", "https://other.example/x", ReasonAgentHost},
		{ports, "GET", "https://any.example/x", ""},
		{ports, "GET", "http://any.example:8000/x", ""},
		{ports, "GET", "http://any.example:8099/x", ""},
		{ports, "GET", "http://any.example:8100/x", ReasonAgentPort},
		{ports, "GET", "http://any.example:7999/x", ReasonAgentPort},
		{ports, "GET", "http://any.example/robots.txt", ReasonAgentPort},
		{ports, "GET", "ftp://any.example/x", ReasonAgentPort},
		{methods, "GET", "https://any.example/x", ""},
		{methods, "HEAD", "https://any.example/robots.txt", ""},
		{methods, "POST", "https://any.example/x", ReasonAgentMethod},
		{methods, "get", "https://any.example/x", ReasonAgentMethod},
		{Boundaries{Methods: []string{"POST"}}, "GET", "https://any.example/robots.txt", ReasonAgentMethod},
	} {
		for _, mode := range []Mode{ModeEnforce, ModeReport, ModeOff} {
			e, s, id := limited(t, "", tt.bounds, time.Time{}, mode)
			target, err := origin.ParseTarget(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			d := e.Decide(t.Context(), Request{tt.method, target, id})
			if d.Allowed != (tt.want == "") || !d.Allowed && d.Reason != tt.want || d.WouldDeny {
				t.Errorf("%+v, %s %s, mode %s: reason %s (%s), want %q", tt.bounds, tt.method, tt.url, mode, d.Reason, d.Detail, tt.want)
			}
			if tt.want != "" && s.lookups > 0 {
				t.Errorf("%s %s: the rules were looked up", tt.method, tt.url)
			}
		}
	}
}

// TestBoundariesOfTunnels checks that a CONNECT is decided by host and port at once. A blind tunnel
// is refused if the agent has methods, and accepted if it may turn out to be plain HTTP.
func TestBoundariesOfTunnels(t *testing.T) {
	t.Parallel()
	b := Boundaries{Hosts: []string{"shop.example"}, Ports: [][2]uint16{{443, 8443}}}
	methods := Boundaries{Methods: []string{"GET"}}
	for _, tt := range []struct {
		bounds           Boundaries
		url              string
		blind, intercept Reason
	}{
		{b, "https://shop.example", ReasonUnrestricted, ReasonIntercepted},
		{b, "https://other.example", ReasonAgentHost, ReasonAgentHost},
		{b, "https://shop.example:9443", ReasonAgentPort, ReasonAgentPort},
		{methods, "https://any.example", ReasonAgentMethod, ReasonIntercepted},
		{b, "https://crawlgate.invalid:25", ReasonAgentHost, ReasonIntercepted},
	} {
		e, s, id := limited(t, "", tt.bounds, time.Time{}, ModeReport)
		o := mustOrigin(t, tt.url)
		if d := e.DecideTunnel(t.Context(), id, o); d.Reason != tt.blind || d.Allowed == d.Reason.Hard() {
			t.Errorf("%s: blind tunnel: reason %s, want %s", tt.url, d.Reason, tt.blind)
		}
		if s.lookups > 0 && tt.blind != ReasonUnrestricted {
			t.Errorf("%s: the rules were looked up", tt.url)
		}
		identifier := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "acme", Boundaries: tt.bounds}}})
		auth := identifier.AuthenticateTunnel(t.Context(), Sender{})
		if d := e.DecideIntercept(auth, o); d.Reason != tt.intercept || d.Allowed == d.Reason.Hard() {
			t.Errorf("%s: intercepted tunnel: reason %s, want %s", tt.url, d.Reason, tt.intercept)
		}
	}
	e, _, id := limited(t, "", methods, time.Time{}, ModeEnforce)
	if d := e.DecideOpening(id, mustOrigin(t, "https://any.example:80")); d.Reason != ReasonIntercepted {
		t.Errorf("plain HTTP in a tunnel: reason %s, want intercepted", d.Reason)
	}
	if d := e.DecideTunnel(t.Context(), id, mustOrigin(t, "https://any.example:8080")); d.Allowed || !d.MayBePlain() {
		t.Errorf("a tunnel that may be plain HTTP: reason %s", d.Reason)
	}
	if d := e.DecideOpening(acmeWith(t, b), mustOrigin(t, "https://"+OwnHost+":80")); !d.Allowed {
		t.Errorf("a tunnel to the gateway's own page is refused: %s", d.Reason)
	}
	if d := e.DecideTunnel(t.Context(), id, mustOrigin(t, "https://any.example")); !strings.Contains(d.Detail, "cannot be seen") {
		t.Errorf("the detail does not name the cause: %s", d.Detail)
	}
	if _, refused := e.Screen(acmeWith(t, b), mustOrigin(t, "http://"+OwnHost)); refused {
		t.Error("the gateway's own page is refused")
	}
}

// TestTunnelOfSeveral checks that a CONNECT is refused only if it can belong to a single agent.
// Otherwise the gateway cannot know whose boundary applies.
func TestTunnelOfSeveral(t *testing.T) {
	t.Parallel()
	narrow := Agent{Name: "narrow", Boundaries: Boundaries{Hosts: []string{"shop.example"}}}
	other := Agent{Name: "other", Boundaries: Boundaries{Ports: [][2]uint16{{80, 80}}}}
	at := func(a Agent, cidr string) Agent {
		a.From = []netip.Prefix{netip.MustParsePrefix(cidr)}
		return a
	}
	e := newEnforcer(nil, nil, nil)
	o := mustOrigin(t, "https://elsewhere.example")
	for _, tt := range []struct {
		agents  []Agent
		unknown bool
		sender  Sender
		want    Reason
	}{
		{[]Agent{narrow}, false, Sender{}, ReasonAgentHost},
		{[]Agent{narrow}, true, Sender{}, ReasonIntercepted},
		{[]Agent{narrow, {Name: "wide"}}, false, Sender{}, ReasonIntercepted},
		{[]Agent{narrow, other}, false, Sender{}, ReasonIntercepted},
		{[]Agent{at(other, "192.0.2.1/32"), at(narrow, "192.0.2.2/32")}, false, Sender{Source: netip.MustParseAddr("192.0.2.2")}, ReasonAgentHost},
		{[]Agent{narrow, {Name: "wide"}}, false, Sender{UserAgent: "narrow/1"}, ReasonIntercepted}, // most requests show another name here
		{nil, false, Sender{}, ReasonIntercepted},
	} {
		id := mustIdentifier(t, IdentifierConfig{Agents: tt.agents, AllowUnidentified: tt.unknown})
		if d := e.DecideIntercept(id.AuthenticateTunnel(t.Context(), tt.sender), o); d.Reason != tt.want || !d.Allowed && d.Agent != "narrow" {
			t.Errorf("%d agents, unknown %t: reason %s of agent %q, want %s", len(tt.agents), tt.unknown, d.Reason, d.Agent, tt.want)
		}
	}
}

// TestExpires checks that everything is refused from the given day on, in UTC, and that a warning
// at load says so.
func TestExpires(t *testing.T) {
	t.Parallel()
	b := Boundaries{Expires: "2027-03-31", Ticket: "SEC-4711"}
	day := time.Date(2027, 3, 31, 0, 0, 0, 0, time.UTC)
	for now, want := range map[time.Time]Reason{day.Add(-1): ReasonNoRule, day: ReasonAgentExpired, day.AddDate(1, 0, 0): ReasonAgentExpired} {
		e, _, id := limited(t, "", b, now, ModeOff)
		e.Policy = nil
		d := e.Decide(t.Context(), Request{"GET", origin.Target{Origin: mustOrigin(t, "https://a.example"), Path: "/"}, id})
		if d.Reason != want || want == ReasonAgentExpired && !strings.Contains(d.Detail, "SEC-4711") {
			t.Errorf("%s: reason %s (%s), want %s", now, d.Reason, d.Detail, want)
		}
		_, warnings, err := NewIdentifier(IdentifierConfig{Agents: []Agent{{Name: "acme", Boundaries: b}}, Now: now})
		if err != nil || (len(warnings) == 1) != (want == ReasonAgentExpired) {
			t.Errorf("%s: warnings %q, error %v", now, warnings, err)
		}
	}
	if !acmeWith(t, b).Config.Closes(day.AddDate(0, -1, 0)).Equal(day) {
		t.Error("Closes does not return the day of expiry")
	}
	b.Windows = []string{"20:00-02:00"}
	for now, want := range map[time.Time]time.Time{day.Add(-3 * time.Hour): day, day.Add(-23 * time.Hour): day.Add(-22 * time.Hour)} {
		if got := acmeWith(t, b).Config.Closes(now); !got.Equal(want) {
			t.Errorf("with a window, Closes at %s returns %s, want %s", now, got, want)
		}
	}
}

// TestBoundaryErrors checks that impossible boundaries are errors.
func TestBoundaryErrors(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]Boundaries{
		`hosts: host pattern ".example"`:      {Hosts: []string{".example"}},
		`methods "get"`:                       {Methods: []string{"get"}},
		`methods "CONNECT"`:                   {Methods: []string{"CONNECT"}},
		`methods ""`:                          {Methods: []string{""}},
		`want two different times`:            {Windows: []string{"06:00-06:00"}},
		`from 00:00 to 23:59`:                 {Windows: []string{"22:00-24:00"}},
		`window "6-7": want two`:              {Windows: []string{"6-7"}},
		`window "22:00": want two`:            {Windows: []string{"22:00"}},
		`no time zone "Mars"`:                 {Windows: []string{"22:00-06:00 Mars"}},
		`no time zone "Local"`:                {Windows: []string{"22:00-06:00 Local"}},
		`expires "tomorrow"`:                  {Expires: "tomorrow"},
		`expires "2027-02-29"`:                {Expires: "2027-02-29"},
		`ticket: want a line`:                 {Ticket: "T-1"},
		`visit_time "yes": want keep, ignore`: {VisitTime: "yes"},
	} {
		_, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{{Name: "acme", Boundaries: b}}})
		if err == nil || !strings.Contains(err.Error(), `agent "acme": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestWindow checks when windows open and close, also on the days on which the clock changes: in
// Berlin on 2027-03-28 at 01:00 UTC from 02:00 to 03:00, and on 2027-10-31 at 01:00 UTC from 03:00
// to 02:00.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		windows string // separated by semicolons
		now     string
		opens   string // equals now if the window is open
		closes  string // the end of that opening
	}{
		{"22:00-06:00 UTC", "2027-06-01T12:00:00Z", "2027-06-01T22:00:00Z", "2027-06-02T06:00:00Z"},
		{"22:00-06:00", "2027-06-01T22:00:00Z", "2027-06-01T22:00:00Z", "2027-06-02T06:00:00Z"},
		{"22:00-06:00", "2027-06-02T05:59:59.999Z", "2027-06-02T05:59:59.999Z", "2027-06-02T06:00:00Z"},
		{"22:00-06:00", "2027-06-02T06:00:00Z", "2027-06-02T22:00:00Z", "2027-06-03T06:00:00Z"},
		{"22:00-06:00", "2027-06-02T21:59:59.25Z", "2027-06-02T22:00:00Z", "2027-06-03T06:00:00Z"},
		{"22:00-00:00", "2027-06-02T00:00:00Z", "2027-06-02T22:00:00Z", "2027-06-03T00:00:00Z"},
		{"22:00-06:00 Europe/Berlin", "2027-06-01T12:00:00Z", "2027-06-01T20:00:00Z", "2027-06-02T04:00:00Z"},
		{"22:00-06:00 Europe/Berlin", "2027-12-01T12:00:00Z", "2027-12-01T21:00:00Z", "2027-12-02T05:00:00Z"},
		// The night of the change is an hour shorter in spring and an hour longer in autumn.
		{"22:00-06:00 Europe/Berlin", "2027-03-27T12:00:00Z", "2027-03-27T21:00:00Z", "2027-03-28T04:00:00Z"},
		{"22:00-06:00 Europe/Berlin", "2027-10-30T12:00:00Z", "2027-10-30T20:00:00Z", "2027-10-31T05:00:00Z"},
		{"22:00-06:00 Europe/Berlin", "2027-03-28T12:00:00Z", "2027-03-28T20:00:00Z", "2027-03-29T04:00:00Z"},
		// The opening or the close is in the gap, and moves to the end of the gap.
		{"02:30-05:00 Europe/Berlin", "2027-03-28T00:00:00Z", "2027-03-28T01:00:00Z", "2027-03-28T03:00:00Z"},
		{"01:00-02:30 Europe/Berlin", "2027-03-27T12:00:00Z", "2027-03-28T00:00:00Z", "2027-03-28T01:00:00Z"},
		// The whole window is in the gap, so it does not open that day.
		{"02:10-02:50 Europe/Berlin", "2027-03-28T00:30:00Z", "2027-03-29T00:10:00Z", "2027-03-29T00:50:00Z"},
		// The opening is in the overlap, which happens twice.
		{"02:30-05:00 Europe/Berlin", "2027-10-30T22:00:00Z", "2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z"},
		{"02:30-05:00 Europe/Berlin", "2027-10-31T01:00:00Z", "2027-10-31T01:30:00Z", "2027-10-31T04:00:00Z"},
		{"01:00-02:30 Europe/Berlin", "2027-10-30T22:00:00Z", "2027-10-30T23:00:00Z", "2027-10-31T00:30:00Z"},
		{"01:00-02:30 Europe/Berlin", "2027-10-31T00:30:00Z", "2027-10-31T01:00:00Z", "2027-10-31T01:30:00Z"},
		// This zone changes its clock by half an hour, at 2 o'clock.
		{"02:00-04:00 Australia/Lord_Howe", "2027-10-02T12:00:00Z", "2027-10-02T15:30:00Z", "2027-10-02T17:00:00Z"},
		// Several windows.
		{"08:00-09:00;12:00-13:00 Europe/Berlin", "2027-06-01T09:00:00Z", "2027-06-01T10:00:00Z", "2027-06-01T11:00:00Z"},
		{"08:00-12:00;11:00-13:00;13:00-14:00", "2027-06-01T15:00:00Z", "2027-06-02T08:00:00Z", "2027-06-02T14:00:00Z"},
		{"00:00-12:00;12:00-00:00", "2027-06-01T15:00:00Z", "2027-06-01T15:00:00Z", ""},
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		e, _, id := limited(t, "", Boundaries{Windows: strings.Split(tt.windows, ";")}, now, ModeEnforce)
		d := e.Decide(t.Context(), Request{"GET", origin.Target{Origin: mustOrigin(t, "https://a.example"), Path: "/"}, id})
		opens := now.Add(d.RetryAfter)
		if got := opens.Format(time.RFC3339Nano); got != tt.opens || d.Allowed != (tt.now == tt.opens) || !d.Allowed && d.Reason != ReasonWindow {
			t.Errorf("%s at %s: reason %s, opens at %s, want %s", tt.windows, tt.now, d.Reason, got, tt.opens)
			continue
		}
		closes := id.Config.Closes(opens)
		if got := closes.UTC().Format(time.RFC3339Nano); closes.IsZero() != (tt.closes == "") || !closes.IsZero() && got != tt.closes {
			t.Errorf("%s at %s: closes at %s, want %s", tt.windows, tt.now, got, tt.closes)
		}
	}
}

// TestWindowMinuteByMinute compares windows with the local time in every minute of a year.
func TestWindowMinuteByMinute(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"22:00-06:00 Europe/Berlin", "02:30-03:15 America/New_York", "00:00-00:30 America/Sao_Paulo", "01:45-02:15 Australia/Lord_Howe"} {
		w, err := parseWindow(text)
		if err != nil {
			t.Fatal(err)
		}
		var turn time.Time
		for now := time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC); now.Year() < 2019; now = now.Add(15 * time.Minute) {
			clock := now.In(w.zone).Format("15:04")
			from, to := text[:5], text[6:11]
			open := from <= clock && clock < to
			if from > to {
				open = from <= clock || clock < to
			}
			if w.has(now) != open {
				t.Fatalf("%s at %s: has = %t", text, clock, !open)
			}
			if !turn.IsZero() && now.Before(turn) != w.turn(now, !open).Equal(turn) {
				t.Fatalf("%s: turn at %s = %s, but an earlier call returned %s", text, now, w.turn(now, !open), turn)
			}
			turn = w.turn(now, !open)
			if w.has(turn) == open || w.has(turn.Add(-1)) != open {
				t.Fatalf("%s at %s: the window does not change at %s", text, now, turn)
			}
		}
	}
}

// TestVisitTime checks that an agent that keeps the Visit-time of sites is refused outside it,
// until it begins, with the line.
func TestVisitTime(t *testing.T) {
	t.Parallel()
	const robots = "User-agent: *\nVisit-time: 2200-0600\nDisallow: /no\n\nUser-agent: acme\nAllow: /\nVisit-time: 0600 - 0845\nVisit-time: 0000-2400\n"
	for _, tt := range []struct {
		keep, robots, now, path string
		mode                    Mode
		want                    Reason
		line                    int
		wait                    time.Duration
	}{
		{"keep", robots, "2027-06-01T05:00:00Z", "/x", ModeEnforce, ReasonVisitTime, 7, time.Hour},
		{"keep", robots, "2027-06-01T06:00:00Z", "/x", ModeEnforce, ReasonAllowedByRule, 6, 0},
		{"keep", robots, "2027-06-01T08:45:00Z", "/x", ModeEnforce, ReasonVisitTime, 7, 21*time.Hour + 15*time.Minute},
		{"keep", robots, "2027-06-01T05:00:00Z", "/x", ModeReport, ReasonVisitTime, 7, time.Hour},
		{"keep", robots, "2027-06-01T05:00:00Z", "/x", ModeOff, ReasonRobotsOff, 0, 0},
		{"keep", robots, "2027-06-01T05:00:00Z", "/robots.txt", ModeEnforce, ReasonRobotsTxt, 0, 0},
		{"ignore", robots, "2027-06-01T05:00:00Z", "/x", ModeEnforce, ReasonAllowedByRule, 6, 0},
		{"", robots, "2027-06-01T05:00:00Z", "/x", ModeEnforce, ReasonAllowedByRule, 6, 0},
		{"keep", robots[:52], "2027-06-01T12:00:00Z", "/no", ModeEnforce, ReasonDisallowed, 3, 0},
		{"keep", robots[:52], "2027-06-01T12:00:00Z", "/x", ModeEnforce, ReasonVisitTime, 2, 10 * time.Hour},
		{"keep", "User-agent: *\nVisit-time: 0000-2400\nVisit-time: 0100-0200", "2027-06-01T12:00:00Z", "/x", ModeEnforce, ReasonNoRule, 0, 0},
		{"keep", "User-agent: *\nVisit-time: 6-8\nAllow: /", "2027-06-01T12:00:00Z", "/x", ModeEnforce, ReasonAllowedByRule, 3, 0},
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		e, _, id := limited(t, tt.robots, Boundaries{VisitTime: tt.keep}, now, tt.mode)
		o := mustOrigin(t, "https://a.example")
		d := e.Decide(t.Context(), Request{"GET", origin.Target{Origin: o, Path: tt.path}, id})
		spared := tt.mode == ModeReport && tt.want == ReasonVisitTime
		if d.Reason != tt.want || d.Line != tt.line || d.RetryAfter != tt.wait || d.WouldDeny != spared || d.Allowed != (spared || tt.want.Allows()) {
			t.Errorf("%+v: reason %s, line %d %q, Retry-After %s, allowed %t", tt, d.Reason, d.Line, d.Rule, d.RetryAfter, d.Allowed)
		}
		if tunnel := e.DecideTunnel(t.Context(), id, o); tt.want == ReasonVisitTime && tt.line == 7 && tunnel.Reason != ReasonVisitTime {
			t.Errorf("%+v: a tunnel has the reason %s, want visit_time", tt, tunnel.Reason)
		}
	}
}

// TestHostsFile checks that a file adds to hosts, that changes are followed, and that an unreadable
// file changes nothing.
func TestHostsFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "hosts")
	write := func(text string, at int64) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Unix(at, 0), time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "acme", Boundaries: Boundaries{Hosts: []string{"own.example"}, HostsFile: name}}}})
		for text, want := range map[string]string{
			"a.example\n\n# b\nhttp://c.example": `agent "acme": hosts_file: ` + name + `: line 4: host pattern "http://c.example": is a URL`,
			"*":                                  "",
		} {
			write(text, 1)
			err := id.Follow(ctx, func(agent string, err error) { t.Errorf("%s: %v", agent, err) })
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q", text, err, want)
			}
		}
		cancel()
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		write("one.example # with a comment\r\n  *.two.example\n", 2)
		var told []error
		if err := id.Follow(ctx, func(_ string, err error) { told = append(told, err) }); err != nil {
			t.Fatal(err)
		}
		agent := id.Agents()[0]
		holds := func(want string) {
			t.Helper()
			var got []string
			for _, host := range []string{"own.example", "one.example", "x.two.example", "two.example", "three.example"} {
				if agent.mayReach(mustOrigin(t, "https://"+host)) {
					got = append(got, host)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("the agent may reach %s, want %s", got, want)
			}
		}
		holds("own.example one.example x.two.example")
		changed := id.Relisted()
		for at, step := range []struct{ text, want string }{
			{"three.example\n", "own.example three.example"},
			{"three.example\n.four.example\n", "own.example three.example"},
			{"", "own.example"},
		} {
			write(step.text, int64(10+at))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			holds(step.want)
		}
		if len(told) != 3 || told[0] != nil || told[2] != nil || !strings.Contains(fmt.Sprint(told[1]), name+": line 2: ") {
			t.Errorf("Follow reported %v, want a success, an error of line 2, and a success", told)
		}
		select {
		case <-changed:
		default:
			t.Error("the change of the hosts was not reported")
		}
		cancel()
		synctest.Wait()
	})
}

// TestHostsFileBound checks that a list of a million hosts is accepted and a longer one is not.
func TestHostsFileBound(t *testing.T) {
	t.Parallel()
	list := manyHosts(maxHosts)
	if set, err := parseHosts(list); err != nil || len(set) != maxHosts {
		t.Errorf("parseHosts of a million hosts: %d hosts, error %v", len(set), err)
	}
	if _, err := parseHosts(append(list, "one.more.example\n"...)); err == nil || !strings.Contains(err.Error(), "line 1000001: ") {
		t.Errorf("parseHosts of a million and one hosts: error %v, want one of line 1000001", err)
	}
}

func manyHosts(n int) []byte {
	var b []byte
	for i := range n {
		b = fmt.Appendf(b, "shop-%d.example%d.com\n", i, i%1000)
	}
	return b
}

// BenchmarkHosts measures a lookup among a million hosts, and the parsing of their file with its
// memory.
func BenchmarkHosts(b *testing.B) {
	list := manyHosts(maxHosts)
	var set hostSet
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			set = nil
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var err error
			if set, err = parseHosts(list); err != nil {
				b.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/maxHosts, "B/host")
		}
	})
	for name, host := range map[string]string{"in": "https://shop-777.example777.com", "below": "https://a.b.c.d.shop-1.example.org"} {
		o := mustOrigin(b, host)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := set.closest(o); ok != (name == "in") {
					b.Fatal(name)
				}
			}
		})
	}
}
