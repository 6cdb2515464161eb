//go:build slow

package operate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// startPrometheus runs Debian's Prometheus with a configuration and waits until it answers.
func startPrometheus(t *testing.T, config string) (addr string) {
	t.Helper()
	program, dir := rig.Need(t, "prometheus"), rig.TempDir(t)
	addr = rig.FreePort(t)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--log.level=warn"), new(rig.Tail)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	rig.Eventually(t, "Prometheus to be ready", func() bool {
		a, err := rig.TryGet(t.Context(), http.DefaultClient, "http://"+addr+"/-/ready")
		return err == nil && a.Status == http.StatusOK
	})
	return addr
}

// sampled returns the number of series of an expression, and fails the test if Prometheus rejects
// the expression.
func sampled(t *testing.T, addr, expr string) int {
	t.Helper()
	a := rig.Get(t, http.DefaultClient, "http://"+addr+"/api/v1/query?query="+url.QueryEscape(expr))
	var found struct {
		Data struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(a.Body), &found); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%s: status %d, %s", expr, a.Status, a.Body)
	}
	return len(found.Data.Result)
}

// dashboardExprs returns the expressions of the dashboard as Grafana sends them.
func dashboardExprs(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(testdocs.Path("examples", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$owner", ".*")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			list = append(list, fill.Replace(target.Expr))
		}
	}
	if len(list) < 25 {
		t.Fatalf("%d expressions, want at least 25", len(list))
	}
	return list
}

// TestDashboard checks that a Prometheus that scrapes a gateway under all kinds of traffic has an
// answer to every expression of the dashboard.
func TestDashboard(t *testing.T) {
	t.Parallel()
	rig.Need(t, "prometheus")
	redis, server := redistest.Start(t), testorigin.Start(t, testorigin.Config{})
	config := rig.NewSealedLog(t).Config("")
	address := redis.URL()
	config.Admin = rig.FreePort(t)
	config.Engine = fmt.Sprintf("gateway gw1.acme.example\n%s\npace {\nrate 1/s\nqueue 4\nwait 300ms\nshared redis %s\n}\nfleet redis %s {\nexpect 1\n}",
		"store redis "+address, address, address)
	config.Egress = "trust_ca " + rig.CAFile(t, server)
	config.Site = "except shop.example {\nuntil 2099-01-01\nreason test\n}"
	g := rig.New(t, config)
	prometheus := startPrometheus(t, fmt.Sprintf(
		"global: {scrape_interval: 500ms}\nscrape_configs: [{job_name: crawlgate, static_configs: [{targets: [%q]}]}]", config.Admin))

	traffic := newTraffic(t, g, server)
	missing := dashboardExprs(t)
	all := len(missing)
	for deadline := time.Now().Add(40 * time.Second); len(missing) > 0 && time.Now().Before(deadline); {
		traffic.once()
		var still []string
		for _, expr := range missing {
			if sampled(t, prometheus, expr) == 0 {
				still = append(still, expr)
			}
		}
		missing = still
	}
	for _, expr := range missing {
		t.Errorf("no series for %s", expr)
	}
	for _, page := range append([]string{"metrics.md"}, testdocs.RunbookPages...) {
		for _, block := range blocks(testdocs.Text(t, page), "promql") {
			for expr := range strings.SplitSeq(block, "\n") {
				if !strings.HasPrefix(expr, "#") {
					sampled(t, prometheus, expr)
				}
			}
		}
	}
	t.Logf("%d expressions", all)
}

// traffic sends requests of all kinds through a gateway.
type traffic struct {
	t                                        *testing.T
	g                                        *rig.Gateway
	good, secure, down, blocked, unreachable *testorigin.Site
}

func newTraffic(t *testing.T, g *rig.Gateway, server *testorigin.Server) *traffic {
	t.Helper()
	site := func(scheme string, robots testorigin.Behaviour) *testorigin.Site {
		s := server.Site(t, testorigin.SiteConfig{Scheme: scheme})
		s.SetRobots(robots)
		return s
	}
	f := &traffic{
		t: t, g: g, good: site("http", testorigin.OK(rig.Rules)), secure: site("https", testorigin.OK(rig.Rules)),
		down: site("http", testorigin.OK(rig.Rules)), blocked: site("http", testorigin.OK(rig.Rules)),
		unreachable: site("http", testorigin.Status(http.StatusServiceUnavailable)),
	}
	f.blocked.SetPages(testorigin.Status(http.StatusTooManyRequests))
	f.down.SetPages(testorigin.ResetInHead())
	return f
}

// once requests a page of each site, and opens a tunnel with a client that does not trust the
// gateway.
func (f *traffic) once() {
	client := f.g.Client("Tester/1.0")
	client.Timeout = 5 * time.Second
	for _, page := range []string{
		f.good.URL(rig.OpenPage), f.good.URL(rig.OpenPage), f.good.URL(rig.PrivatePage), f.down.URL(rig.OpenPage), f.blocked.URL(rig.OpenPage), f.unreachable.URL(rig.OpenPage),
	} {
		_, _ = rig.TryGet(f.t.Context(), client, page) // some of them fail
	}
	_, _ = rig.TryGet(f.t.Context(), client, f.secure.URL(rig.OpenPage)) // this client does not trust the gateway's authority
	w := f.g.Dial()
	defer w.Close()
	if resp := w.Connect(f.t, rig.HostOf(f.secure.URL("/")), "Tester/1.0"); resp.StatusCode == http.StatusOK {
		_ = tls.Client(w, &tls.Config{RootCAs: f.g.Authority(), ServerName: "localhost"}).Handshake() // an intercepted tunnel
	}
}

// TestStandingMetrics checks that the metrics of the configuration, and the labels of agents,
// follow a reload. The certificate metric is about the one that clients get.
func TestStandingMetrics(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Site: "agent oldbot {\nowner \"Search team\"\n}\nconnect intercept\nexcept shop.example news.example {\nuntil 2099-01-01\nreason test\n}"})
	ends := time.Date(2099, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, want := range map[string]float64{
		"crawlgate_build_info": 1, "crawlgate_exceptions": 1, "crawlgate_exception_ends_seconds": float64(ends.Unix()),
	} {
		if got := g.Metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	body := g.Admin("/metrics").Body
	block, _ := pem.Decode([]byte(rig.Get(t, http.DefaultClient, "http://"+g.Addr+"/ca.crt").Body))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf(`crawlgate_ca_not_after_seconds{certificate="root"} %v`, float64(root.NotAfter.Unix()))
	for _, want := range []string{line, `certificate="intermediate"`, `crawlgate_early_requests_total{agent="oldbot",owner="Search team"} 0`} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics lack %s: %s", want, body)
		}
	}
	if err := g.Reload(rig.Config{Site: "agent newbot\nconnect deny"}); err != nil {
		t.Fatal(err)
	}
	if body := g.Admin("/metrics").Body; strings.Contains(body, "oldbot") || !strings.Contains(body, `crawlgate_agent_held_seconds_total{agent="newbot",owner=""} 0`) {
		t.Errorf("after the reload, the agents in the metrics are wrong: %s", body)
	}
	for _, absent := range []string{"crawlgate_ca_not_after_seconds{", "crawlgate_exception_ends_seconds "} {
		if strings.Contains(g.Admin("/metrics").Body, absent) {
			t.Errorf("the metrics still have %s after the reload", absent)
		}
	}
	if n := g.Metric("crawlgate_exceptions"); n != 0 {
		t.Errorf("%v exceptions after the reload, want 0", n)
	}
}
