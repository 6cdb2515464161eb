//go:build slow

package access

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestConsole checks that crawlers cannot reach the operator's page, and that the page's orders
// apply to them.
func TestConsole(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	page := rig.FreePort(t)
	// The password of ada is "open sesame".
	g := rig.New(t, rig.Config{Sites: fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nbasic_auth {\n"+
		"ada $2a$04$YpL2MwB3lw6DP0b3ygrNIuhaORMVr0vpC4zpEoiWySN6uRSEkKfXm\n}\nrobots_console {\norders on\n}\n}", page[strings.LastIndex(page, ":")+1:])})
	a, err := g.Fetch("AcmeBot/1.0", "http://"+page+"/")
	refusedAsOwn(t, "the page by way of the gateway", a, err)

	order := func(action string) {
		t.Helper()
		form := url.Values{"action": {action}, "confirm": {"yes"}, "scope": {"host"}, "value": {site.Origin().Host}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+page+"/orders", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("ada", "open sesame")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }() // the part that was read counts
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s: %d %s, %v", action, resp.StatusCode, body, err)
		}
	}
	for _, step := range []struct {
		action string
		status int
	}{{"", http.StatusOK}, {"deny", http.StatusForbidden}, {"undeny", http.StatusOK}} {
		if step.action != "" {
			order(step.action)
		}
		a := g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
		killed := a.Header.Get("Crawlgate-Decision") == "deny; reason=kill_switch"
		if a.Status != step.status || killed != (step.action == "deny") {
			t.Errorf("after %q: status %d, want %d; header %v", step.action, a.Status, step.status, a.Header)
		}
	}
}

// TestConsoleIsNoTarget tries to reach the operator's page through the gateway: by every address of
// the machine, after the operator has allowed it alone; by the redirect of a robots.txt;
// and at the former address of a plain site.
func TestConsoleIsNoTarget(t *testing.T) {
	t.Parallel()
	allowed := []string{rig.Everywhere}
	for _, host := range spellingsOfThisMachine(t) {
		if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			allowed = append(allowed, netip.PrefixFrom(ip, ip.BitLen()).String())
		}
	}
	first, second := portOf(t), portOf(t)
	const page = "basic_auth {\nada $2a$04$YpL2MwB3lw6DP0b3ygrNIuhaORMVr0vpC4zpEoiWySN6uRSEkKfXm\n}\nrobots_console"
	site := func(port, lines string) string { return fmt.Sprintf("http://:%s {\n%s\n}\n", port, lines) }
	config := rig.Config{
		Engine: rig.Unpaced, Egress: strings.Join(allowed, " "), Sites: site(first, page) + site(second, "respond plain"),
	}
	g := rig.New(t, config)
	refused := func(when, port string) {
		t.Helper()
		for _, host := range spellingsOfThisMachine(t) {
			for way, ask := range g.Through(http.MethodGet, host+":"+port, "/") {
				a, err := ask()
				refusedAsOwn(t, when+", "+way+", "+host, a, err)
			}
		}
	}
	refused("at first", first)
	redirected := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	redirected.SetRobots(testorigin.Redirect(http.StatusFound, "http://127.0.0.1:"+first+"/"))
	if a := g.MustFetch("AcmeBot/1.0", redirected.URL(rig.OpenPage)); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "own_listener") {
		t.Errorf("by a redirect: status %d, want 403 for own_listener: %s", a.Status, a.Body)
	}
	rig.Eventually(t, "the plain site to be reached", func() bool { return g.MustFetch("AcmeBot/1.0", "http://127.0.0.1:"+second+"/").Body == "plain" })
	config.Sites = site(second, page)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	refused("after a reload", second)
}

// TestConsoleLetsTheProcessStop checks that pages with live updates delay neither a stop nor a
// reload, even without a grace period.
func TestConsoleLetsTheProcessStop(t *testing.T) {
	t.Parallel()
	page := rig.FreePort(t)
	config := rig.Config{Sites: fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nrobots_console\n}", page[strings.LastIndex(page, ":")+1:])}
	g := rig.New(t, config)
	follow := func() (ended <-chan struct{}) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+page+"/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("live updates: %v, %v", resp, err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body) // a stop may cut it off
		}()
		return done
	}
	// ends fails the test unless the page's live updates end soon after the event.
	ends := func(what string, ended <-chan struct{}) {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("live updates go on after %s", what)
		}
	}
	ended := follow()
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	ends("a reload", ended)
	ended = follow()
	began := time.Now()
	g.Stop() // fails the test after 20 s
	ends("the stop", ended)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s, want at most 10s", took)
	}
}
