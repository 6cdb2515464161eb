package limits

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// counted is a site that counts the connections and requests that reach it, those for its
// robots.txt too.
type counted struct {
	*httptest.Server
	port                  string
	connections, requests atomic.Int64
}

// startCounted starts a site at localhost and 127.0.0.1. /away redirects to the URL in its query.
func startCounted(t *testing.T, ca *rig.TestCA) *counted {
	t.Helper()
	s := new(counted)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, "User-agent: *\nDisallow:\n")
		case "/away":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
		default:
			_, _ = io.WriteString(w, "page\n")
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	if ca == nil {
		s.Start()
	} else {
		s.EnableHTTP2 = true
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.Issue(t, []string{"localhost", "127.0.0.1"}, nil)}}
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	_, s.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return s
}

// world has two sites that agents may reach, and two that they must not.
type world struct {
	ca                                 *rig.TestCA
	plain, secure, plainOut, secureOut *counted
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ca := rig.NewTestCA(t)
	return &world{ca, startCounted(t, nil), startCounted(t, ca), startCounted(t, nil), startCounted(t, ca)}
}

// gateway starts a gateway with an agent for each kind of boundary. The other boundaries permit
// that agent everything.
func (w *world) gateway(t *testing.T, site string) *rig.Gateway {
	t.Helper()
	agents := fmt.Sprintf("agent hostbot {\nhosts localhost\n}\nagent portbot {\nports %s %s\n}\nagent methodbot {\nmethods GET\n}\n", w.plain.port, w.secure.port)
	return rig.New(t, rig.Config{Engine: rig.Unpaced, Site: agents + site}.Trusting(w.ca))
}

// untouched fails the test if anything has reached the sites that no agent may reach.
func (w *world) untouched(t *testing.T) {
	t.Helper()
	for name, s := range map[string]*counted{"plain": w.plainOut, "secure": w.secureOut} {
		if c, r := s.connections.Load(), s.requests.Load(); c > 0 || r > 0 {
			t.Errorf("%d connections and %d requests reached the %s site, which no agent may reach", c, r, name)
		}
	}
}

// ways returns the ways in which a client sends a request through a gateway. Each returns the
// status and the reason of a refusal.
func ways(t *testing.T, g *rig.Gateway) map[string]func(agent, method, url string) (int, string, error) {
	t.Helper()
	over := func(version int) func(agent, method, url string) (int, string, error) {
		return func(agent, method, url string) (int, string, error) {
			c := g.SecureClient(agent, version)
			defer rig.HangUp(c)
			return send(t, c, method, url)
		}
	}
	return map[string]func(agent, method, url string) (int, string, error){
		"absolute form": func(agent, method, url string) (int, string, error) {
			w := g.Dial()
			defer w.Close()
			a, err := w.Ask(method, method+" "+url+" HTTP/1.1\r\nHost: "+rig.HostOf(url)+"\r\nUser-Agent: "+agent+"\r\n\r\n")
			return a.Status, reasonOf(a.Header), err
		},
		"tunnel, HTTP/1.1": over(1),
		"tunnel, HTTP/2":   over(2),
		"plain HTTP in a tunnel": func(agent, method, url string) (int, string, error) {
			w := g.Dial()
			defer w.Close()
			if resp := w.Connect(t, rig.HostOf(url), agent); resp.StatusCode != http.StatusOK {
				return resp.StatusCode, reasonOf(resp.Header), nil
			}
			_, path, _ := strings.Cut(url[len("http://"):], "/")
			a, err := w.Ask(method, method+" /"+path+" HTTP/1.1\r\nHost: "+rig.HostOf(url)+"\r\nUser-Agent: "+agent+"\r\n\r\n")
			return a.Status, reasonOf(a.Header), err
		},
		"redirect": func(agent, method, url string) (int, string, error) { // through a URL that redirects
			c := g.SecureClient(agent, 1)
			c.CheckRedirect = nil
			defer rig.HangUp(c)
			return send(t, c, method, url)
		},
	}
}

func send(t *testing.T, c *http.Client, method, url string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	a, err := rig.ReadAnswer(resp)
	return a.Status, reasonOf(a.Header), err
}

// reasonOf returns the reason of a refusal in the field of the gateway.
func reasonOf(h http.Header) string {
	decision, rest, _ := strings.Cut(h.Get(enforce.HeaderDecision), "; reason=")
	reason, _, _ := strings.Cut(rest, ";")
	if decision == "allow" {
		return ""
	}
	return reason
}

// TestBoundaries sends requests that a boundary permits and others that it forbids, in all ways.
// Nothing forbidden leaves the gateway, not even a fetch of a robots.txt, and log, audit,
// simulation and check agree.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway(t, "connect intercept")
	at := func(scheme, host string, s *counted, path string) string {
		return scheme + "://" + host + ":" + s.port + path
	}
	sites := map[string][2]*counted{"http": {w.plain, w.plainOut}, "https": {w.secure, w.secureOut}}
	schemes := map[string][]string{
		"absolute form": {"http", "https"}, "tunnel, HTTP/1.1": {"https"}, "tunnel, HTTP/2": {"https"}, "plain HTTP in a tunnel": {"http"}, "redirect": {"http", "https"},
	}
	sent := 0
	for way, ask := range ways(t, g) {
		for _, scheme := range schemes[way] {
			in, out := sites[scheme][0], sites[scheme][1]
			for _, path := range []string{"/page", "/robots.txt"} {
				for _, tt := range []struct{ agent, method, url, reason string }{
					{"hostbot", "GET", at(scheme, "localhost", in, path), ""},
					{"hostbot", "GET", at(scheme, "127.0.0.1", out, path), "agent_host"},
					{"portbot", "GET", at(scheme, "localhost", in, path), ""},
					{"portbot", "GET", at(scheme, "localhost", out, path), "agent_port"},
					{"methodbot", "GET", at(scheme, "localhost", in, path), ""},
					{"methodbot", "HEAD", at(scheme, "localhost", out, path), "agent_method"},
				} {
					if way == "redirect" {
						if tt.agent == "methodbot" {
							continue // a redirect does not change the method
						}
						tt.url = at(scheme, "localhost", in, "/away?to="+url.QueryEscape(tt.url))
						sent++
					}
					status, reason, err := ask(tt.agent, tt.method, tt.url)
					sent++
					want := http.StatusOK
					if tt.reason != "" {
						want = http.StatusForbidden
					}
					if err != nil || status != want || reason != tt.reason {
						t.Errorf("%s: %s %s %s: status %d, reason %q, error %v; want %d, %q", way, tt.agent, tt.method, tt.url, status, reason, err, want, tt.reason)
					}
				}
			}
		}
	}
	w.untouched(t)
	if w.plain.requests.Load() == 0 || w.secure.requests.Load() == 0 {
		t.Error("nothing reached the sites that agents may reach")
	}
	for url, want := range map[string]string{
		at("https", "localhost", w.secure, "/page"): "no_rule", at("https", "127.0.0.1", w.secureOut, "/page"): "agent_host",
	} {
		if out, _ := g.Robots("check", "--agent", "hostbot", url); !strings.Contains(out, want) {
			t.Errorf("robots check %s does not print %q: %s", url, want, out)
		}
	}
	w.untouched(t)
	g.Logs(sent)
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "the log")
	r := rig.Simulate(t, "--store", g.Store(), "--config", filepath.Join(g.Dir, "Caddyfile"), g.AccessLog())
	if r.Status != 0 || r.Totals.Different > 0 || r.Totals.Same < int64(sent) {
		t.Errorf("the simulation returned %+v", r)
	}
}

// TestBoundariesOfBlindTunnels checks that a blind tunnel is decided by its CONNECT, and refused if
// the agent has methods, unless plain HTTP comes.
func TestBoundariesOfBlindTunnels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway(t, "connect tunnel")
	for _, tt := range []struct {
		agent, host string
		site        *counted
		reason      string
	}{
		{"hostbot", "localhost", w.secure, ""},
		{"hostbot", "127.0.0.1", w.secureOut, "agent_host"},
		{"portbot", "localhost", w.secure, ""},
		{"portbot", "localhost", w.secureOut, "agent_port"},
	} {
		c := g.Dial()
		resp := c.Connect(t, tt.host+":"+tt.site.port, tt.agent)
		if reason := reasonOf(resp.Header); reason != tt.reason {
			t.Errorf("%s to %s: status %s, reason %q, want %q", tt.agent, tt.host, resp.Status, reason, tt.reason)
			continue
		}
		if tt.reason == "" {
			inner := rig.Inside(t, c)
			if a, err := inner.Ask("POST", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); err != nil || a.Status != http.StatusOK {
				t.Errorf("%s: %+v, error %v", tt.agent, a, err)
			}
		}
	}
	c := g.Dial() // accepted for plain HTTP; TLS gets nothing
	if resp := c.Connect(t, "localhost:"+w.secureOut.port, "methodbot"); resp.StatusCode != http.StatusOK {
		t.Errorf("CONNECT of methodbot: status %s, want 200", resp.Status)
	}
	if _, err := c.Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}); err == nil {
		t.Error("a tunnel that hides methods was opened")
	}
	rig.Eventually(t, "the line of that tunnel", func() bool {
		return slices.ContainsFunc(g.ReadLogs(), func(l rig.LogLine) bool {
			return l.Robots.Agent == "methodbot" && l.Robots.Reason == enforce.ReasonAgentMethod && l.Status == http.StatusOK
		})
	})
	plain := ways(t, g)["plain HTTP in a tunnel"]
	for method, want := range map[string]string{"GET": "", "HEAD": "agent_method"} {
		site := map[string]*counted{"GET": w.plain, "HEAD": w.plainOut}[method]
		if _, reason, err := plain("methodbot", method, "http://localhost:"+site.port+"/page"); err != nil || reason != want {
			t.Errorf("%s in plain HTTP: reason %q, error %v, want %q", method, reason, err, want)
		}
	}
	w.untouched(t)
}

// TestConnectOfOneAgent checks that the CONNECT of an intercepted tunnel is refused at once if only
// one agent can be inside and that agent must not reach the host.
func TestConnectOfOneAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := rig.New(t, rig.Config{Site: "agent hostbot {\nhosts localhost\n}"})
	resp := g.Dial().Connect(t, "127.0.0.1:"+w.secureOut.port, "")
	if reason := reasonOf(resp.Header); resp.StatusCode != http.StatusForbidden || reason != "agent_host" {
		t.Errorf("status %s, reason %s, want 403 and agent_host", resp.Status, reason)
	}
	if a := g.Tunnel("localhost:" + w.secure.port); a == nil {
		t.Error("the tunnel to a permitted host was not opened")
	}
	for page, want := range map[string]int{"/agent": http.StatusOK, "/refused": http.StatusForbidden} {
		if a, err := g.Fetch("hostbot", "http://"+enforce.OwnHost+page); err != nil || a.Status != want {
			t.Errorf("the gateway's own page %s: %+v, error %v, want status %d", page, a, err, want)
		}
	}
	w.untouched(t)
}

// TestHostsFile checks that a change of the file applies to requests and to open blind tunnels. A
// file with an error leaves the earlier hosts in force, and a file that cannot be read at load is
// an error.
func TestHostsFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	write("localhost # the site\n")
	config := rig.Config{Engine: rig.Unpaced, Site: "agent hostbot {\nhosts_file " + file + "\n}\nconnect tunnel"}.Trusting(w.ca)
	g := rig.New(t, config)
	reaches := func(host string) bool {
		a := g.MustFetch("hostbot", "http://"+host+":"+w.plain.port+"/page")
		return a.Status == http.StatusOK
	}
	if !reaches("localhost") || reaches("127.0.0.1") {
		t.Error("the hosts of the file are not in force")
	}
	c := g.Dial()
	if resp := c.Connect(t, "localhost:"+w.secure.port, "hostbot"); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	inner := rig.Inside(t, c)
	const ask = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	if a, err := inner.Ask("GET", ask); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	write("127.0.0.1\nhttp://x\n")
	rig.Eventually(t, "an error", func() bool { return strings.Contains(g.Stderr.String(), file+": line 2: host pattern") })
	if !reaches("localhost") || reaches("127.0.0.1") {
		t.Error("a file with an error changed the hosts")
	}
	if a, err := inner.Ask("GET", ask); err != nil || a.Status != http.StatusOK {
		t.Error("the tunnel ended", a, err)
	}
	write("127.0.0.1\n")
	rig.Eventually(t, "the other host", func() bool { return reaches("127.0.0.1") })
	if reaches("localhost") {
		t.Error("the earlier host is still permitted")
	}
	rig.Eventually(t, "the end of the tunnel", func() bool {
		_, err := inner.Ask("GET", ask)
		return err != nil
	})
	if l := g.ClosedTunnel("localhost:" + w.secure.port); !strings.Contains(l.Robots.Detail, "outside of a boundary") {
		t.Errorf("the log line is %s", l.Raw)
	}
	write("127.0.0.1 localhost\n")
	if err := g.Reload(config); err == nil || !strings.Contains(err.Error(), file+": line 1: host pattern") {
		t.Errorf("a reload with an error in the file returned %v", err)
	}
}

// TestHours checks that an agent gets 429 outside its hours, with the time when they begin, and 403
// after its last day.
func TestHours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC()
	opens := now.Add(2 * time.Hour).Truncate(time.Minute)
	last := now.AddDate(0, 0, 2).Truncate(24 * time.Hour)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: fmt.Sprintf(
		"agent sleeper {\nwindow %s-%s UTC\n}\nagent old {\nexpires 2026-01-01\nticket SEC-4711\n}\nagent trial {\nexpires %s\n}\nmode off",
		opens.Format("15:04"), opens.Add(time.Hour).Format("15:04"), last.Format(time.DateOnly))})
	url := "http://localhost:" + w.plainOut.port + "/page"
	before := time.Now()
	a := g.MustFetch("sleeper", url)
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if told := time.Now().Add(time.Duration(seconds) * time.Second); a.Status != http.StatusTooManyRequests || reasonOf(a.Header) != "window" || err != nil ||
		told.Before(opens) || told.After(opens.Add(time.Since(before)+2*time.Second)) {
		t.Errorf("status %d, header %v, error %v; want 429 until %s", a.Status, a.Header, err, opens)
	}
	if a := g.MustFetch("old", url); a.Status != http.StatusForbidden || reasonOf(a.Header) != "agent_expired" || !strings.Contains(a.Body, "SEC-4711") {
		t.Errorf("the expired agent got %+v", a)
	}
	w.untouched(t)
	if a := g.MustFetch("trial", "http://localhost:"+w.plain.port+"/page"); a.Status != http.StatusOK {
		t.Errorf("an agent before its last day got %+v", a)
	}
	if !strings.Contains(g.Stderr.String(), `agent \"old\": expired on 2026-01-01`) {
		t.Errorf("the log has no warning of the expired agent: %s", g.Stderr)
	}
	if ends := g.Metric("crawlgate_exception_ends_seconds"); ends != float64(last.Unix()) {
		t.Errorf("the next end is %v, want %d", ends, last.Unix())
	}
}

// TestPage types the commands about boundaries in docs/limits.md.
func TestPage(t *testing.T) {
	t.Parallel()
	curl := rig.Need(t, "curl")
	section := testdocs.Sections(t, "limits.md")["Boundaries"]
	_, config, _ := strings.Cut(section, "robots {\n")
	config, _, _ = strings.Cut(config, "\n\t}\n")
	g := rig.New(t, rig.Config{Site: config})
	shown := 0
	for command := range strings.SplitSeq(section, "\n$ ") {
		typed, want, _ := strings.Cut(command, "\n")
		if !strings.HasPrefix(typed, "curl ") {
			continue
		}
		want, _, _ = strings.Cut(want, "```")
		typed = strings.Replace(strings.Replace(typed, "localhost:3128", g.Addr, 1), "curl ", curl+" --noproxy '' ", 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", typed).Output()
		if shown++; err != nil || string(out) != want {
			t.Errorf("%s printed %q, error %v; the page shows %q", typed, out, err, want)
		}
	}
	if shown == 0 {
		t.Error("the page shows no command")
	}
	if out, _ := g.Robots("check", "--agent", "shopbot", "https://other.example/"); !strings.Contains(out, "agent_host") {
		t.Errorf("robots check: %s", out)
	}
}

// TestVisitTime checks that an agent that keeps a site's hours gets 429 until they begin, that
// another one passes, and that the audit computes both from the text.
func TestVisitTime(t *testing.T) {
	t.Parallel()
	opens := time.Now().UTC().Add(2 * time.Hour).Truncate(time.Minute)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\nVisit-time: " + opens.Format("1504-") + opens.Add(time.Hour).Format("1504") + "\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "agent keeper {\nvisit_time keep\n}\nagent other"})
	before := time.Now()
	a := g.MustFetch("keeper", site.URL("/page"))
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if told := time.Now().Add(time.Duration(seconds) * time.Second); a.Status != http.StatusTooManyRequests || reasonOf(a.Header) != "visit_time" || err != nil ||
		told.Before(opens) || told.After(opens.Add(time.Since(before)+2*time.Second)) || !strings.Contains(a.Body, "(line 3)") {
		t.Errorf("status %d, reason %s, header %v, error %v; want 429 until %s", a.Status, a.Reason, a.Header, err, opens)
	}
	for agent, path := range map[string]string{"keeper": "/robots.txt", "other": "/page"} {
		if a := g.MustFetch(agent, site.URL(path)); a.Status != http.StatusOK {
			t.Errorf("%s: %+v", agent, a)
		}
	}
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("%d pages reached the site, want 1", n)
	}
	if out, _ := g.Robots("check", "--agent", "keeper", site.URL("/page")); !strings.Contains(out, "visit_time") {
		t.Errorf("robots check: %s", out)
	}
	g.Logs(3)
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "the log")
	if r := rig.Simulate(t, "--store", g.Store(), "--config", filepath.Join(g.Dir, "Caddyfile"), g.AccessLog()); r.Status != 0 || r.Totals.Same != 3 {
		t.Errorf("the simulation returned %+v", r)
	}
}

// TestReloadWhileWaiting checks that a request that waits for its turn is judged by the configuration of a reload during
// its wait, and by the file of hosts of that configuration.
func TestReloadWhileWaiting(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	file := filepath.Join(t.TempDir(), "hosts")
	write := func(host string) error { return os.WriteFile(file, []byte(host+"\n"), 0o600) }
	tests := []struct{ agent, before, after, reason string }{ // the lines of the agent; HOST is its site's
		{"kept", "hosts HOST", "hosts other.test HOST", ""},
		{"narrowed", "hosts HOST", "hosts other.test", "agent_host"},
		{"expired", "", "expires 2026-01-01", "agent_expired"},
		{"listed", "hosts_file " + file, "hosts_file " + file, "agent_host"},
		{"denied", "", "}\ndeny HOST\nexcept other.test {\nreason test", "operator_deny"},
	}
	before, after := rig.Config{Engine: "pace {\nrate off\nwait 60s\n}"}, rig.Config{Engine: "pace {\nrate off\nwait 60s\n}"}
	sites := make([]*testorigin.Site, len(tests))
	for i, tt := range tests {
		sites[i] = server.Site(t, testorigin.SiteConfig{})
		sites[i].SetRobots(testorigin.OK("User-agent: *\nDisallow:\nCrawl-delay: 8\n"))
		block := func(lines string) string {
			return "agent " + tt.agent + " {\n" + strings.ReplaceAll(lines, "HOST", sites[i].Origin().Host) + "\n}\n"
		}
		before.Site += block(tt.before)
		after.Site += block(tt.after)
		if tt.agent == "listed" && write(sites[i].Origin().Host) != nil {
			t.Fatal("there is no file of hosts")
		}
	}
	g := rig.New(t, before)
	var all sync.WaitGroup
	for i, tt := range tests {
		var refusals atomic.Int64
		for range 2 {
			all.Go(func() {
				a, err := g.Fetch(tt.agent, sites[i].URL("/page"))
				if a.Status != http.StatusOK {
					refusals.Add(1)
					if err != nil || reasonOf(a.Header) != tt.reason {
						t.Errorf("%s: %d %q, %v; want %q", tt.agent, a.Status, reasonOf(a.Header), err, tt.reason)
					}
				}
			})
		}
		defer func() {
			if n := len(sites[i].PageExchanges()); n != 2-int(refusals.Load()) || n < 2 != (tt.reason != "") {
				t.Errorf("%s: %d pages reached the site", tt.agent, n)
			}
		}()
	}
	rig.Eventually(t, "the first request to each site", func() bool {
		return !slices.ContainsFunc(sites, func(s *testorigin.Site) bool { return len(s.PageExchanges()) == 0 })
	})
	if err := errors.Join(g.Reload(after), write("other.test")); err != nil {
		t.Error(err)
	}
	all.Wait()
	g.Logs(2 * len(tests))
	g.Stop()
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "the log")
}
