//go:build slow

package https

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
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestTunnelsAreNoRequests sends https requests to sites that disallow everything. The gateway
// intercepts the tunnels to one site and refuses those to another. Every output must count all
// requests as refused and none as allowed.
func TestTunnelsAreNoRequests(t *testing.T) {
	t.Parallel()
	const n = 3
	server := testorigin.Start(t, testorigin.Config{})
	secure, blind := server.Site(t, testorigin.SiteConfig{Scheme: "https"}), server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	for _, s := range []*testorigin.Site{secure, blind} {
		s.SetRobots(testorigin.OK("User-agent: *\nDisallow: /\n"))
	}
	page := rig.FreePort(t)
	g := rig.New(t, rig.Config{
		Egress: "trust_ca " + rig.CAFile(t, server), Engine: rig.Unpaced, Site: "connect tunnel " + blind.Origin().Host + "\nconnect intercept",
		// The password of ada is "open sesame".
		Sites: fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nbasic_auth {\nada $2a$04$YpL2MwB3lw6DP0b3ygrNIuhaORMVr0vpC4zpEoiWySN6uRSEkKfXm\n}\nrobots_console\n}",
			page[strings.LastIndex(page, ":")+1:]),
	})
	for range n {
		c := g.SecureClient("AcmeBot/1.0", 1)
		if a, err := rig.TryGet(t.Context(), c, secure.URL("/page")); err != nil || a.Status != http.StatusForbidden {
			t.Fatalf("status %d, error %v, want 403", a.Status, err)
		}
		rig.HangUp(c)
		if _, err := rig.TryGet(t.Context(), c, blind.URL("/page")); err == nil {
			t.Fatal("a tunnel to a site that disallows everything was opened")
		}
	}
	g.Logs(3 * n)

	for name, want := range map[string]float64{
		`crawlgate_decisions_total`: n, `crawlgate_tunnel_decisions_total`: 2 * n, `crawlgate_decision_states_total`: 2 * n,
	} {
		if got := g.Metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	metrics := g.Admin("/metrics").Body
	for _, line := range []string{
		`crawlgate_decisions_total{decision="deny",reason="disallowed"} 3`,
		`crawlgate_tunnel_decisions_total{decision="allow",inside="seen",reason="intercepted"} 3`,
		`crawlgate_tunnel_decisions_total{decision="deny",inside="unseen",reason="tunnel_restricted"} 3`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	shown := rig.Get(t, http.DefaultClient, "http://ada:open%20sesame@"+page+"/")
	for _, row := range []string{`>disallowed</span></td><td[^>]*>3</td><td[^>]*>100\.0 % of requests<`, `\(tunnels\)</a> <span class="note">tunnel_restricted</span></td><td[^>]*>3</td><td[^>]*>50\.0 % of tunnels<`} {
		if !regexp.MustCompile(row).MatchString(shown.Body) {
			t.Errorf("the page of the operator lacks %s: %s", row, shown.Body)
		}
	}

	audited := rig.Audit(t, "--gateway", "unix/"+g.AdminSocket(), g.AccessLog())
	audited.Clean(t, "the log")
	allowed, denied, opened, refused := int64(0), int64(0), int64(0), int64(0)
	for _, a := range audited.Totals.Agents {
		allowed, denied = allowed+a.Allowed, denied+a.Refused
		opened, refused = opened+a.Tunnels.Allowed, refused+a.Tunnels.Refused
	}
	if allowed != 0 || denied != n || opened != n || refused != n {
		t.Errorf("the audit counts %d requests allowed and %d denied, %d tunnels opened and %d refused", allowed, denied, opened, refused)
	}
	if out, err := rig.RunBinary(t, "robots", "audit", "--gateway", "unix/"+g.AdminSocket(), g.AccessLog()); err != nil ||
		!regexp.MustCompile(`\nAcmeBot +\d +3 +0 +3 +0 +\d +\d +\d +0 +0 +0\n`).MatchString(out) {
		t.Errorf("error %v, output %s", err, out)
	}

	for format, want := range map[string]string{
		"text": `: 3 requests, 0 allowed, 3 refused, 0 failed; .*\n6 tunnels \(CONNECT\), which are no requests: 3 opened, 3 refused, 0 failed\.\n`,
		"html": `: 3 requests, 0 allowed, 3 refused, 0 failed; [^<]*</p>\n<p>6 tunnels \(CONNECT\), which are no requests: 3 opened, 3 refused, 0 failed\.`,
		"csv":  `\ntotal,,3,0,3,0,0,0.000,6,3,3,0,0,`,
		"json": `"total":{"asked":3,"allowed":0,"refused":3,"failed":0,"tunnels":{"asked":6,"allowed":3,"refused":3,"failed":0,"blind":0},"held":0,"wait_s":0}`,
	} {
		out, err := rig.RunBinary(t, "robots", "report", "--format", format, g.AccessLog())
		if err != nil || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: error %v, output %s", format, err, out)
		}
	}

	out, err := rig.RunBinary(t, "robots", "why", "--gateway", "unix/"+g.AdminSocket(), "--limit", "9", g.AccessLog())
	if err != nil || strings.Count(out, "\ntunnel ") != 2*n || strings.Count(out, "\nrequest ") != n || strings.Contains(out, " allowed: ") {
		t.Errorf("error %v, output %s", err, out)
	}
	off := filepath.Join(t.TempDir(), "off.Caddyfile")
	if err := os.WriteFile(off, []byte(":3128 {\n\trobots {\n\t\tmode off\n\t\tconnect intercept\n\t}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	simulated := rig.Simulate(t, "--gateway", "unix/"+g.AdminSocket(), "--config", off, g.AccessLog())
	var totals struct {
		Lines, Different, Tunnels int64
		Changes                   []struct {
			Old   string
			Lines int64
		}
	}
	out, _ = rig.RunBinary(t, "robots", "simulate", "--json", "--gateway", "unix/"+g.AdminSocket(), "--config", off, g.AccessLog()) // it exits with status 1
	last := strings.TrimSpace(out)
	if err := json.Unmarshal([]byte(last[strings.LastIndexByte(last, '\n')+1:]), &totals); err != nil ||
		totals.Lines != 3*n || totals.Tunnels != 2*n || totals.Different != simulated.Totals.Different || !slices.ContainsFunc(totals.Changes, func(c struct {
		Old   string
		Lines int64
	},
	) bool {
		return c.Old == "deny disallowed" && c.Lines == n
	}) {
		t.Errorf("error %v, simulated totals %+v", err, totals)
	}
}

// TestPlainTunnelsAreSeen sends plain HTTP through tunnels that would stay blind for TLS. The
// requests have their own lines, so the tunnels count as seen.
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
			site.SetRobots(testorigin.OK(rig.TunnelRules))
			g := rig.NewTunnelGateway(t, server, policy)
			agent := map[bool]string{true: "Free/1.0", false: "Tester/1.0"}[name == "unrestricted"]
			w := g.Dial()
			if resp := w.Connect(t, site.Origin().Authority(), agent); resp.StatusCode != http.StatusOK {
				t.Fatalf("CONNECT: status %s", resp.Status)
			}
			if _, err := w.Ask(http.MethodGet, "GET "+rig.OpenPage+" HTTP/1.1\r\nHost: "+site.Origin().Authority()+"\r\nUser-Agent: "+agent+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			if l := g.Logs(2)[1]; l.Robots.Reason != enforce.ReasonIntercepted || !l.Robots.PathVisible || l.Robots.State != "unknown" {
				t.Errorf("the log line is %s", l.Raw)
			}
			if line := "crawlgate_tunnel_decisions_total{decision=\"allow\",inside=\"seen\",reason=\"intercepted\"} 1\n"; !strings.Contains(g.Admin("/metrics").Body, line) {
				t.Errorf("the metrics lack %s", line)
			}
			if n := g.Metric("crawlgate_tunnel_decisions_total"); n != 1 {
				t.Errorf("%v tunnels, want 1", n)
			}
			rig.Audit(t, "--gateway", "unix/"+g.AdminSocket(), g.AccessLog()).Clean(t, "the log")
			out, err := rig.RunBinary(t, "robots", "report", "--format", "json", g.AccessLog())
			if want := `"tunnels":{"asked":1,"allowed":1,"refused":0,"failed":0,"blind":0}`; err != nil || !strings.Contains(out, `"total":{"asked":1,"allowed":1,`) || !strings.Contains(out, want) {
				t.Errorf("report: error %v, output %s", err, out)
			}
			same := filepath.Join(t.TempDir(), "same.Caddyfile")
			if err := os.WriteFile(same, []byte(":3128 {\n\trobots {\n"+policy+"\n}\n}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := rig.Simulate(t, "--gateway", "unix/"+g.AdminSocket(), "--config", same, g.AccessLog()); s.Totals.Different != 0 || s.Totals.Lines != 2 || len(s.Totals.NotComputed) > 0 {
				t.Errorf("the simulation has the totals %+v", s.Totals)
			}
		})
	}
}
