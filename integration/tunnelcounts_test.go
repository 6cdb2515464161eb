package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestTunnelsAreNoRequests sends https requests to sites that disallow everything, one gateway looking into their tunnels
// and refusing tunnels to another site: in every output all are asked and refused, and none is allowed.
func TestTunnelsAreNoRequests(t *testing.T) {
	t.Parallel()
	const n = 3
	server := testorigin.Start(t, testorigin.Config{})
	secure, blind := server.Site(t, testorigin.SiteConfig{Scheme: "https"}), server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	for _, s := range []*testorigin.Site{secure, blind} {
		s.SetRobots(testorigin.OK("User-agent: *\nDisallow: /\n"))
	}
	page := freePort(t)
	g := startGateway(t, gatewayConfig{
		Egress: "trust_ca " + caFile(t, server), Engine: unpaced, Site: "connect tunnel " + blind.Origin().Host + "\nconnect intercept",
		// The password of ada is "open sesame".
		Sites: fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nbasic_auth {\nada $2a$04$YpL2MwB3lw6DP0b3ygrNIuhaORMVr0vpC4zpEoiWySN6uRSEkKfXm\n}\nrobots_console\n}",
			page[strings.LastIndex(page, ":")+1:]),
	})
	for range n {
		c := g.secureClient("AcmeBot/1.0", 1)
		if a, err := tryGet(t.Context(), c, secure.URL("/page")); err != nil || a.status != http.StatusForbidden {
			t.Fatalf("%d, %v", a.status, err)
		}
		hangUp(c)
		if _, err := tryGet(t.Context(), c, blind.URL("/page")); err == nil {
			t.Fatal("a tunnel to a site that disallows everything was opened")
		}
	}
	g.logs(3 * n)

	for name, want := range map[string]float64{
		`crawlgate_decisions_total`: n, `crawlgate_tunnel_decisions_total`: 2 * n, `crawlgate_decision_states_total`: 2 * n,
	} {
		if got := g.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	metrics := g.admin("/metrics").body
	for _, line := range []string{
		`crawlgate_decisions_total{decision="deny",reason="disallowed"} 3`,
		`crawlgate_tunnel_decisions_total{decision="allow",inside="seen",reason="intercepted"} 3`,
		`crawlgate_tunnel_decisions_total{decision="deny",inside="unseen",reason="tunnel_restricted"} 3`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	shown := get(t, http.DefaultClient, "http://ada:open%20sesame@"+page+"/")
	for _, row := range []string{`<td>disallowed</td><td>AcmeBot</td><td class="n">3</td>`, `<td>tunnel_restricted \(tunnels\)</td><td>[^<]*</td><td class="n">3</td>`} {
		if !regexp.MustCompile(row).MatchString(shown.body) {
			t.Errorf("the page of the operator lacks %s: %s", row, shown.body)
		}
	}

	audited := audit(t, "--gateway", "unix/"+g.adminSocket(), g.accessLog())
	audited.clean(t, "the log")
	allowed, denied, opened, refused := int64(0), int64(0), int64(0), int64(0)
	for _, a := range audited.totals.Agents {
		allowed, denied = allowed+a.Allowed, denied+a.Refused
		opened, refused = opened+a.Tunnels.Allowed, refused+a.Tunnels.Refused
	}
	if allowed != 0 || denied != n || opened != n || refused != n {
		t.Errorf("audited: %d allowed, %d denied; of tunnels %d, %d", allowed, denied, opened, refused)
	}
	if out, err := runBinary(t, "robots", "audit", "--gateway", "unix/"+g.adminSocket(), g.accessLog()); err != nil ||
		!regexp.MustCompile(`\nAcmeBot +\d +3 +0 +3 +0 +\d +\d +\d +0 +0 +0\n`).MatchString(out) {
		t.Errorf("%v: %s", err, out)
	}

	for format, want := range map[string]string{
		"text": `: 3 requests, 0 allowed, 3 refused, 0 failed; .*\n6 tunnels \(CONNECT\), which are no requests: 3 opened, 3 refused, 0 failed\.\n`,
		"html": `: 3 requests, 0 allowed, 3 refused, 0 failed; [^<]*</p>\n<p>6 tunnels \(CONNECT\), which are no requests: 3 opened, 3 refused, 0 failed\.`,
		"csv":  `\ntotal,,3,0,3,0,0,0.000,6,3,3,0,0,`,
		"json": `"total":{"asked":3,"allowed":0,"refused":3,"failed":0,"tunnels":{"asked":6,"allowed":3,"refused":3,"failed":0,"blind":0},"held":0,"wait_s":0}`,
	} {
		out, err := runBinary(t, "robots", "report", "--format", format, g.accessLog())
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %v: %s", format, err, out)
		}
	}

	out, err := runBinary(t, "robots", "why", "--gateway", "unix/"+g.adminSocket(), "--limit", "9", g.accessLog())
	if err != nil || strings.Count(out, "\ntunnel ") != 2*n || strings.Count(out, "\nrequest ") != n || strings.Contains(out, " allowed: ") {
		t.Errorf("%v: %s", err, out)
	}
	off := filepath.Join(t.TempDir(), "off.Caddyfile")
	if err := os.WriteFile(off, []byte(":3128 {\n\trobots {\n\t\tmode off\n\t\tconnect intercept\n\t}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	simulated := simulate(t, "--gateway", "unix/"+g.adminSocket(), "--config", off, g.accessLog())
	var totals struct {
		Lines, Different, Tunnels int64
		Changes                   []struct {
			Old   string
			Lines int64
		}
	}
	out, _ = runBinary(t, "robots", "simulate", "--json", "--gateway", "unix/"+g.adminSocket(), "--config", off, g.accessLog()) // its status is 1
	last := strings.TrimSpace(out)
	if err := json.Unmarshal([]byte(last[strings.LastIndexByte(last, '\n')+1:]), &totals); err != nil ||
		totals.Lines != 3*n || totals.Tunnels != 2*n || totals.Different != simulated.totals.Different || !slices.ContainsFunc(totals.Changes, func(c struct {
		Old   string
		Lines int64
	},
	) bool {
		return c.Old == "deny disallowed" && c.Lines == n
	}) {
		t.Errorf("%v: simulated %+v", err, totals)
	}
}

// TestPlainTunnelsAreSeen sends plain HTTP through tunnels that would not be looked into if TLS came in them: the requests
// have lines of their own, so the tunnels count as seen, whatever opened them.
func TestPlainTunnelsAreSeen(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{
		"restricted": "connect tunnel", "unrestricted": "connect tunnel", "denied": "connect deny",
		"exempt": "connect tunnel\nexcept 127.0.0.1 {\nreason \"ticket 7\"\n}", "off": "connect tunnel\nmode off", "reported": "connect tunnel\nmode report",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testorigin.Start(t, testorigin.Config{})
			site := server.Site(t, testorigin.SiteConfig{})
			site.SetRobots(testorigin.OK(tunnelRules))
			g := startTunnelGateway(t, server, policy)
			agent := map[bool]string{true: "Free/1.0", false: "Tester/1.0"}[name == "unrestricted"]
			w := g.dial()
			if resp := w.connect(t, site.Origin().Authority(), agent); resp.StatusCode != http.StatusOK {
				t.Fatalf("CONNECT: status %s", resp.Status)
			}
			if _, err := w.ask(http.MethodGet, "GET "+openPage+" HTTP/1.1\r\nHost: "+site.Origin().Authority()+"\r\nUser-Agent: "+agent+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			if l := g.logs(2)[1]; l.Robots.Reason != enforce.ReasonIntercepted || !l.Robots.PathVisible || l.Robots.State != "unknown" {
				t.Errorf("logged as %s", l.raw)
			}
			if line := "crawlgate_tunnel_decisions_total{decision=\"allow\",inside=\"seen\",reason=\"intercepted\"} 1\n"; !strings.Contains(g.admin("/metrics").body, line) {
				t.Errorf("the metrics lack %s", line)
			}
			if n := g.metric("crawlgate_tunnel_decisions_total"); n != 1 {
				t.Errorf("%v tunnels", n)
			}
			audit(t, "--gateway", "unix/"+g.adminSocket(), g.accessLog()).clean(t, "the log")
			out, err := runBinary(t, "robots", "report", "--format", "json", g.accessLog())
			if want := `"tunnels":{"asked":1,"allowed":1,"refused":0,"failed":0,"blind":0}`; err != nil || !strings.Contains(out, `"total":{"asked":1,"allowed":1,`) || !strings.Contains(out, want) {
				t.Errorf("report: %v: %s", err, out)
			}
			same := filepath.Join(t.TempDir(), "same.Caddyfile")
			if err := os.WriteFile(same, []byte(":3128 {\n\trobots {\n"+policy+"\n}\n}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := simulate(t, "--gateway", "unix/"+g.adminSocket(), "--config", same, g.accessLog()); s.totals.Different != 0 || s.totals.Lines != 2 || len(s.totals.NotComputed) > 0 {
				t.Errorf("simulated: %+v", s.totals)
			}
		})
	}
}
