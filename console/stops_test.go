package console_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/console"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestQuestions checks which orders need a confirmation, and its question.
func TestQuestions(t *testing.T) {
	g := newRig(t, auth(""), "orders on")
	g.Load("agent alpha\nagent beta\n"+siteOf(auth(""), "orders on"), "")
	form := func(pairs ...string) url.Values {
		f := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			f.Set(pairs[i], pairs[i+1])
		}
		return f
	}
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	allow := func(pairs ...string) url.Values {
		return form(append(pairs, "action", "allow", "value", "alpha", "host", "shop.test", "paths", "/feed /a", "until", soon, "ticket", "OPS-7")...)
	}
	const given = "given" // without a confirmation
	for _, tt := range []struct {
		name string
		form url.Values
		want string
		left int
	}{
		{"all", form("action", "deny", "scope", "all"), "Every request of every agent is refused, including the requests of the 2 configured agents", 0},
		{"all with a reason", form("action", "deny", "scope", "all", "reason", "fire"), `value="fire"`, 0},
		{"all without a reason", form("action", "deny", "scope", "all", "confirm", "yes", "reason", " "), "required", 0},
		{"many hosts", form("action", "deny", "scope", "host", "value", "*.shop.test"), "Every request to *.shop.test is refused", 0},
		{"one host", form("action", "deny", "scope", "host", "value", "shop.test"), given, 1},
		{"no agent", form("action", "deny", "scope", "agent", "value", "alpa"), "near it is alpha.", 1},
		{"no agent all the same", form("action", "deny", "scope", "agent", "value", "alpa", "force", "yes", "confirm", "yes"), given, 2},
		{"agent at a host", form("action", "deny", "scope", "agent", "value", "beta", "host", "shop.test", "reason", "loops"), given, 3},
		{"no agent at a host", form("action", "deny", "scope", "agent", "value", "bta", "host", "shop.test"), `name="value" value="bta@shop.test"`, 3},
		{"lift it", form("action", "undeny", "scope", "agent@host", "value", "beta@shop.test", "confirm", "yes"), given, 2},
		{"agent at many hosts", form("action", "deny", "scope", "agent", "value", "beta", "host", "*.shop.test"), `name="confirm"`, 2},
		{"all at last", form("action", "deny", "scope", "all", "confirm", "yes", "reason", "fire"), given, 3},
		{"lift", form("action", "undeny", "scope", "all"), "Requests go on at once.", 3},
		{"lift confirmed", form("action", "undeny", "scope", "all", "confirm", "yes"), given, 2},
		{"an exception", allow("", ""), "Requests of alpha to shop.test, paths /feed /a,", 2},
		{"with a reason", allow("reason", "permitted"), `name="ticket" value="OPS-7"`, 2},
		{"confirmed without a reason", allow("confirm", "yes"), `name="until" value="` + soon, 2},
		{"confirmed", allow("confirm", "yes", "reason", "permitted"), given, 3},
		{"lift it again", form("action", "undeny", "scope", "allow", "value", "alpha@shop.test /a /feed"), "robots.txt holds again at once", 3},
		{"and confirm", form("action", "undeny", "scope", "allow", "value", "alpha@shop.test /a /feed", "confirm", "yes"), given, 2},
		{"forget", form("action", "purge", "value", "https://shop.test"), "fetches its robots.txt again", 2},
	} {
		resp, body := g.ask("POST", "/orders", tt.form, ada)
		asked := resp.StatusCode == http.StatusOK && strings.Contains(body, `name="confirm"`) && strings.Contains(body, tt.want) && strings.Contains(body, `<a href="/stops">Back`)
		if n := len(g.orders()); n != tt.left || asked == (tt.want == given) || !asked && resp.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %d, %d in force, want %d: %s", tt.name, resp.StatusCode, n, tt.left, body)
		}
	}
}

// TestStopOfManyAsks checks that a stop of one host needs a confirmation if it ends many requests.
func TestStopOfManyAsks(t *testing.T) {
	g := newRig(t, auth(""), "orders on")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	for range 21 {
		_, entry, err := engine.Current().EnterRequest(t.Context(), site.Origin(), "alpha")
		if err != nil {
			t.Fatal(err)
		}
		defer entry.Leave()
	}
	stop := url.Values{"action": {"deny"}, "scope": {"host"}, "value": {site.Origin().Host}}
	if _, body := g.ask("POST", "/orders", stop, ada); len(g.orders()) != 0 || !strings.Contains(body, "In progress at this gateway, and ended by the stop: 21, of 1 agents.") {
		t.Errorf("orders %v, want none and a question: %s", g.orders(), body)
	}
	stop.Set("value", "other.test")
	if resp, _ := g.ask("POST", "/orders", stop, ada); resp.StatusCode != http.StatusSeeOther || len(g.orders()) != 1 {
		t.Errorf("a stop of a host without requests: got status %d and orders %v, want 303 and one", resp.StatusCode, g.orders())
	}
}

// TestJournalPage checks that the page of stops says who stopped and lifted what today.
func TestJournalPage(t *testing.T) {
	g := newRig(t, auth(""), "orders on")
	for _, form := range []url.Values{
		{"action": {"deny"}, "scope": {"host"}, "value": {"shop.test"}, "reason": {"complaint 7"}},
		{"action": {"undeny"}, "scope": {"host"}, "value": {"shop.test"}, "confirm": {"yes"}},
		{"action": {"deny"}, "scope": {"agent"}, "value": {"alpha"}, "reason": {"loops"}},
		{
			"action": {"allow"}, "value": {"alpha"}, "host": {"shop.test"}, "until": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
			"ticket": {"OPS-7"}, "reason": {"permitted"}, "confirm": {"yes"},
		},
	} {
		if resp, body := g.ask("POST", "/orders", form, ada); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("got status %d, want 303: %s", resp.StatusCode, body)
		}
	}
	_, body := g.ask("GET", "/stops", nil, ada)
	held, journal, _ := strings.Cut(body, `<section id="journal"`)
	for _, want := range []string{"<h2>Exceptions at run time</h2>", `data-of="Ticket">OPS-7</td>`, `value="alpha@shop.test"`} {
		if !strings.Contains(held, want) {
			t.Errorf("the list of orders lacks %q: %s", want, held)
		}
	}
	for _, want := range []string{"<td>host shop.test</td>", "complaint 7", `data-of="Lifted by">ada</td>`, "<td>agent alpha</td>", "in force", "permitted (ticket OPS-7)", "<td>allow alpha@shop.test</td>"} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal lacks %q: %s", want, journal)
		}
	}
}

// TestJournal checks the order and the limits of the journal.
func TestJournal(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 1, 0, 0, 0, time.UTC)
	stop := func(id string, at time.Time) enforce.Stop {
		return enforce.Stop{ID: id, Scope: enforce.StopHost, Value: id + ".test", By: "ada", At: at}
	}
	lifted := stop("b", now.Add(-48*time.Hour))
	all := enforce.StopSet{
		Held: []enforce.Stop{stop("a", now.Add(-2*time.Hour)), stop("c", now.Add(-time.Minute))},
		Lifted: map[string]enforce.Lift{
			"b": {By: "bob", At: now.Add(-30 * time.Minute), Stop: &lifted},
			"d": {By: "carol", At: now.Add(-50 * time.Hour)}, // by an earlier release
		},
	}
	list, more := console.JournalOf(all)
	got := fmt.Sprint(more)
	for _, d := range list {
		got += fmt.Sprintf(" %s/%s", d.Value, d.Lift.By)
	}
	if want := "0 c.test/ b.test/bob a.test/ /carol"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range 1000 {
		all.Held = append(all.Held, stop(fmt.Sprint("x", i), now.Add(-time.Minute)))
	}
	if list, more := console.JournalOf(all); len(list)+more != 1004 || more < 800 {
		t.Errorf("%d of 1004 entries are shown, and %d more are counted", len(list), more)
	}
}

// TestAuthorityBadge checks that the page shows when the root expires, and the intermediate only if
// nothing has renewed it.
func TestAuthorityBadge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 1, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		root, first time.Duration
		want        string
	}{
		{10 * 365 * 24 * time.Hour, 6 * 24 * time.Hour, "ok root until 2036-11-24"},
		{10 * 365 * 24 * time.Hour, 23 * time.Hour, "bad a certificate ends in 23 h"},
		{20 * 24 * time.Hour, 6 * 24 * time.Hour, "warn root until 2026-12-17"},
		{20 * time.Hour, 20 * time.Hour, "bad a certificate ends in 20 h"},
	} {
		s := engine.Status{Authority: map[string]*x509.Certificate{"root": {NotAfter: now.Add(tt.root)}}, AuthorityEnds: now.Add(tt.first)}
		if b := console.AuthorityBadge(s, now); b.Level+" "+b.Text != tt.want {
			t.Errorf("%s, %s: %s %s, want %s", tt.root, tt.first, b.Level, b.Text, tt.want)
		}
	}
	if b := console.AuthorityBadge(engine.Status{}, now); b.Text != "nothing is intercepted" {
		t.Errorf("badge without an authority = %v", b)
	}
}

// TestCharts checks that the hour has 60 minutes, even right after the start, and ends with the
// current minute.
func TestCharts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 18, 54, 30, 0, time.UTC)
	minute := now.Truncate(time.Minute)
	charts := console.ChartsOf([]engine.Minute{
		{Start: minute.Add(-60 * time.Minute), Requests: 999}, // before the hour
		{Start: minute.Add(-time.Minute), Requests: 1500, Held: 30, Refused: 500, Failed: 70}, {Start: minute, Requests: 3},
	}, now)
	got := string(charts[0])
	for _, want := range []string{
		`viewBox="0 0 60 2000"`, "<title>17:55, 0 allowed, 0 allowed after a wait, 0 refused, 0 failed</title>", "<title>18:53, 900 allowed, 30 allowed after a wait, 500 refused, 70 failed</title>",
		`class="allowed running" d="M59.05 `, "<span>17:55</span><span>18:15</span><span>18:35</span><span>18:55</span>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the chart lacks %s: %s", want, got)
		}
	}
	if n := strings.Count(got, "<title>"); n != 60 || strings.Contains(got, "999") {
		t.Errorf("the chart has %d minutes, want 60: %s", n, got)
	}
}
