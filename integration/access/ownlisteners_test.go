//go:build slow

package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// portOf returns a free port.
func portOf(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(rig.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// spellingsOfThisMachine returns hosts that mean the machine on which the test runs.
func spellingsOfThisMachine(t *testing.T) []string {
	t.Helper()
	hosts := []string{"127.0.0.1", "127.0.0.2", "[::1]", "0.0.0.0", "[::]", "localhost", "LOCALHOST"}
	nets, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nets {
		if ip, _, err := net.ParseCIDR(n.String()); err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			hosts = append(hosts, strings.TrimSuffix(net.JoinHostPort(ip.String(), ""), ":"))
		}
	}
	if name, err := os.Hostname(); err == nil {
		if _, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name); err == nil {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// refusedAsOwn fails the test unless the gateway refused the target as its own.
func refusedAsOwn(t *testing.T, what string, a rig.Answer, err error) {
	t.Helper()
	if err != nil || a.Status != http.StatusForbidden || !strings.Contains(a.Header.Get("Proxy-Status"), "crawlgate; error=") ||
		strings.Contains(a.Body, `"apps"`) {
		t.Errorf("%s: status %d, Proxy-Status %q, error %v, want a refusal by the gateway: %.200s", what, a.Status, a.Header.Get("Proxy-Status"), err, a.Body)
	}
}

// TestAdminIsNoTarget tries to reach the admin API and the gateway itself through the gateway, by
// every address of the machine. The operator has allowed all ranges.
func TestAdminIsNoTarget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, site string }{
		{"enforce", ""},
		{"mode off", "mode off"},
		{"blind tunnels", "mode off\nconnect tunnel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			admin := portOf(t)
			g := rig.New(t, rig.Config{Admin: ":" + admin, Engine: rig.Unpaced, Egress: rig.Everywhere, Site: tt.site})
			_, own, _ := net.SplitHostPort(g.Addr)
			asked := 0
			for _, host := range spellingsOfThisMachine(t) {
				for target, request := range map[string]string{"GET /config/": admin, "POST /load": admin, "POST /stop": admin, "GET /health": own} {
					method, path, _ := strings.Cut(target, " ")
					for way, ask := range g.Through(method, host+":"+request, path) {
						a, err := ask()
						refusedAsOwn(t, fmt.Sprintf("%s %s:%s%s, %s", method, host, request, path, way), a, err)
						asked++
					}
				}
				for _, port := range []string{admin, own} {
					target := "ftp://" + host + ":" + port + "/config/"
					a, err := g.Fetch("Tester/1.0", target)
					refusedAsOwn(t, target, a, err)
					asked++
				}
			}
			lines := slices.DeleteFunc(g.Logs(asked), func(l rig.LogLine) bool { return l.Request.Method == http.MethodConnect })
			for _, l := range lines {
				if l.Robots.Reason != enforce.ReasonOwnListener || !strings.Contains(l.Robots.Detail, "gateway") {
					t.Errorf("the log line does not have the reason own_listener: %s", l.Raw)
				}
			}
			if len(lines) < asked {
				t.Errorf("%d log lines, want at least %d", len(lines), asked)
			}
		})
	}
}

// TestAdminIsNoTargetOfTLS sends TLS to the admin endpoints through a blind tunnel and an
// intercepted one. The remote admin endpoint speaks TLS and starts to listen after everything else.
func TestAdminIsNoTargetOfTLS(t *testing.T) {
	t.Parallel()
	admin, remote := "127.0.0.1:"+portOf(t), "127.0.0.1:"+portOf(t)
	config := rig.Config{Admin: admin, Egress: rig.Everywhere, Site: "mode off\nconnect tunnel 127.0.0.1\nconnect intercept"}
	g := rig.New(t, config)
	addRemoteAdmin(g, remote)
	for _, target := range []string{admin, remote} {
		w := g.Dial()
		if resp := w.Connect(t, target, "Tester/1.0"); resp.StatusCode != http.StatusOK {
			t.Fatalf("CONNECT: %s", resp.Status)
		}
		_, _ = io.WriteString(w, rig.ClientHello(t, "127.0.0.1"))
		if got, _ := io.ReadAll(w); len(got) > 0 {
			t.Errorf("%s answered %q, want nothing", target, got)
		}
		if l := g.ClosedTunnel(target); l.Robots.Reason != enforce.ReasonOwnListener {
			t.Errorf("the log line does not have the reason own_listener: %s", l.Raw)
		}
		inside := strings.Replace(target, "127.0.0.1", "localhost", 1)
		a, err := rig.TryGet(t.Context(), g.SecureClient("Tester/1.0", 1), "https://"+inside+"/config/")
		refusedAsOwn(t, "intercepted", a, err)
	}
}

// addRemoteAdmin loads the running configuration again, with a remote admin endpoint.
func addRemoteAdmin(g *rig.Gateway, listen string) {
	g.T.Helper()
	var config map[string]map[string]any
	if err := json.Unmarshal([]byte(g.Admin("/config/").Body), &config); err != nil {
		g.T.Fatal(err)
	}
	config["admin"]["identity"] = map[string]any{"identifiers": []string{"localhost"}, "issuers": []any{map[string]string{"module": "internal"}}}
	config["admin"]["remote"] = map[string]any{"listen": listen}
	config["apps"]["pki"] = map[string]any{"certificate_authorities": map[string]any{"local": map[string]any{"install_trust": false}}}
	body, err := json.Marshal(config)
	if err != nil {
		g.T.Fatal(err)
	}
	resp, err := http.Post("http://"+g.Config.Admin+"/load", "application/json", bytes.NewReader(body))
	if err != nil {
		g.T.Fatal(err)
	}
	if a, err := rig.ReadAnswer(resp); err != nil || a.Status != http.StatusOK {
		g.T.Fatalf("loading a remote admin endpoint: status %d, body %s, error %v", a.Status, a.Body, err)
	}
	conn, err := (&net.Dialer{}).DialContext(g.T.Context(), "tcp", listen)
	if err != nil {
		g.T.Fatal(err)
	}
	_ = conn.Close()
}

// TestAdminIsNoTargetAfterReloads moves the admin endpoint and adds sites while the gateway runs. A
// request that was held before a reload must not reach them either.
func TestAdminIsNoTargetAfterReloads(t *testing.T) {
	t.Parallel()
	first, second, plain := portOf(t), portOf(t), portOf(t)
	config := rig.Config{Admin: "127.0.0.1:" + first, Engine: "pace {\nrate 1/2s\nburst 1\nwait 20s\n}", Egress: rig.Everywhere, Site: "mode off"}
	g := rig.New(t, config)
	check := func(when, port string) {
		t.Helper()
		for _, host := range []string{"127.0.0.1", "127.0.0.2", "[::1]", "localhost"} {
			for way, ask := range g.Through(http.MethodGet, host+":"+port, "/config/") {
				a, err := ask()
				refusedAsOwn(t, when+", "+way+", "+host, a, err)
			}
		}
	}
	check("at first", first)

	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{Host: "127.0.0.1"})
	if a := g.MustFetch("Tester/1.0", site.URL("/")); a.Status != http.StatusOK {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	held := make(chan rig.Answer)
	go func() {
		a, _ := g.Fetch("Tester/1.0", "http://127.0.0.1:"+second+"/config/") // held for two seconds
		held <- a
	}()
	rig.Eventually(t, "the request to be held", func() bool { return strings.Contains(g.Admin("/robots/clocks").Body, `"waiting":1`) })
	config.Admin = "127.0.0.1:" + second
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	refusedAsOwn(t, "held since before the reload", <-held, nil)
	check("moved", second)

	config.Sites = "http://:" + plain + " {\nrespond \"a second site\"\n}"
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	check("a second site", second)
	check("the second site", plain)
}

// TestOtherSitesOfTheProcess checks that another site of the process is reached only if its exact
// address is allowed.
func TestOtherSitesOfTheProcess(t *testing.T) {
	t.Parallel()
	plain, admin := portOf(t), portOf(t)
	config := rig.Config{
		Admin: "127.0.0.1:" + admin, Engine: rig.Unpaced, Egress: rig.Everywhere + " 127.0.0.1/32", Site: "mode off",
		Sites: "http://:" + plain + " {\nrespond \"a second site\"\n}",
	}
	g := rig.New(t, config)
	ask := func(host, port string) rig.Answer {
		return g.MustFetch("Tester/1.0", "http://"+host+":"+port+"/config/")
	}
	// Caddy may serve for a moment before the process knows which of its servers are gateways.
	rig.Eventually(t, "the second site to be reached", func() bool { return ask("127.0.0.1", plain).Body == "a second site" })
	for _, host := range []string{"127.0.0.2", "[::1]", "0.0.0.0"} {
		refusedAsOwn(t, "the second site at "+host, ask(host, plain), nil)
	}
	_, own, _ := net.SplitHostPort(g.Addr)
	for what, port := range map[string]string{"the admin endpoint": admin, "the gateway": own} {
		refusedAsOwn(t, what, ask("127.0.0.1", port), nil)
	}
	const why = "another site of the gateway's process; only allow_private 127.0.0.2 opens it"
	if a := ask("127.0.0.2", plain); strings.Contains(a.Body, why) || !strings.Contains(a.Body, "allow_private") {
		t.Errorf("the refusal does not say how to allow the site: %s", a.Body)
	}
	rig.Eventually(t, "a line that says why", func() bool {
		return slices.ContainsFunc(g.ReadLogs(), func(l rig.LogLine) bool { return strings.Contains(l.Robots.Detail, why) })
	})
}

// TestAdminAfterManyDescriptors tries to reach the admin endpoint with a thousand connections open.
func TestAdminAfterManyDescriptors(t *testing.T) {
	t.Parallel()
	admin := portOf(t)
	g := rig.New(t, rig.Config{Admin: "127.0.0.1:" + admin, Egress: rig.Everywhere, Site: "mode off"})
	for range 1000 {
		g.Dial()
	}
	a, err := g.Fetch("Tester/1.0", "http://127.0.0.1:"+admin+"/config/")
	refusedAsOwn(t, "the admin endpoint", a, err)
}
