//go:build slow

package pace

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestPacePerSite paces by registrable domain: hosts of one company share a clock, others do not.
// No request leaves the gateway, so the names need not exist.
func TestPacePerSite(t *testing.T) {
	t.Parallel()
	next := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer next.Close()
	g := rig.New(t, rig.Config{
		Engine: "pace {\nrate 1/30s\nburst 1\nwait 0s\nper site\n}",
		Site:   "mode off\negress off",
		Around: "reverse_proxy " + next.URL,
	})
	for _, step := range []struct {
		host string
		want int
	}{
		{"www.example.com", http.StatusOK},
		{"img.example.com", http.StatusTooManyRequests},
		{"www.example.com:8080", http.StatusTooManyRequests},
		{"example.net", http.StatusOK},
		{"a.example.co.uk", http.StatusOK}, // co.uk is a public suffix
		{"b.example.co.uk", http.StatusTooManyRequests},
		{"other.co.uk", http.StatusOK},
		{"a.github.io", http.StatusOK}, // and so is github.io
		{"b.github.io", http.StatusOK},
	} {
		a := g.MustFetch("Tester/1.0", "http://"+step.host+"/")
		if a.Status != step.want {
			t.Errorf("%s: status %d, want %d: %s", step.host, a.Status, step.want, a.Body)
		}
		if step.want == http.StatusTooManyRequests {
			rig.CheckRefusal(t, a, 10*time.Second, 30*time.Second)
		}
	}
	for _, l := range g.Logs(9) { // docs/access-log.md, sent_at
		if sent := l.Robots.SentAt > 0; sent != (l.Robots.Decision == enforce.OutcomeAllow) {
			t.Errorf("sent_at does not agree with the decision: %+v", l.Robots)
		}
	}
}

// TestPacePerAddress paces names by their addresses: two names of one machine share a clock.
func TestPacePerAddress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for per, second := range map[string]int{"per host": http.StatusNotFound, "per address": http.StatusTooManyRequests, "per host address": http.StatusTooManyRequests} {
		g := rig.New(t, rig.Config{Engine: "pace {\nrate 1/30s\nburst 1\nwait 0s\n" + per + "\n}", Egress: "allow_private ::1/128"})
		if a := g.MustFetch("Tester/1.0", "http://127.0.0.1:"+port+"/"); a.Status != http.StatusNotFound {
			t.Fatalf("%s: status %d: %s", per, a.Status, a.Body)
		}
		if a := g.MustFetch("Tester/1.0", "http://localhost:"+port+"/"); a.Status != second {
			t.Errorf("%s: the other name: status %d, want %d: %s", per, a.Status, second, a.Body)
		}
	}
}

// TestPaceTunnels opens blind tunnels. Each takes a slot of the host.
func TestPaceTunnels(t *testing.T) {
	t.Parallel()
	const delay, tunnels = time.Second, 4
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.Header().Set("Connection", "close")
			_, _ = w.Write([]byte("User-agent: *\nCrawl-delay: 1\nDisallow:\n"))
		}
	}))
	accepted := &acceptTimes{Listener: origin.Listener}
	origin.Listener = accepted
	go accepted.watch(t.Context())
	origin.StartTLS()
	defer origin.Close()
	ca := filepath.Join(rig.TempDir(t), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: origin.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	g := rig.New(t, rig.Config{
		Engine: "pace {\nrate off\nwait 30s\n}", Egress: "trust_ca " + ca, Site: "connect tunnel",
	})
	client := origin.Client()
	config := client.Transport.(*http.Transport).TLSClientConfig
	authority := strings.TrimPrefix(origin.URL, "https://")
	var open sync.WaitGroup
	for range tunnels {
		w := g.Tunnel(authority)
		open.Go(func() {
			conn := tls.Client(w, &tls.Config{RootCAs: config.RootCAs, ServerName: "127.0.0.1"})
			if err := conn.HandshakeContext(t.Context()); err != nil {
				t.Errorf("TLS through the tunnel: %v", err)
				return
			}
			inner := &rig.Wire{Conn: conn, Reader: bufio.NewReader(conn)}
			for range 2 { // requests inside are not paced, because the gateway does not see them
				if a, err := inner.Ask(http.MethodGet, "GET /page HTTP/1.1\r\nHost: "+authority+"\r\n\r\n"); err != nil || a.Status != http.StatusOK {
					t.Errorf("inside the tunnel: status %d, error %v", a.Status, err)
				}
			}
		})
	}
	open.Wait()
	times := accepted.all()
	if len(times) != tunnels+1 {
		t.Fatalf("%d connections, want one for robots.txt and %d for tunnels", len(times), tunnels)
	}
	late := accepted.late()
	least := rig.Shortest(times[1:], 1)
	t.Logf("the shortest gap is %v; the origin was up to %v late", least, late)
	if least < delay-late {
		t.Errorf("two tunnels were opened %v apart, want %v; the origin was up to %v late", least, delay, late)
	}
}

// acceptTimes records when connections are accepted, and how late the process wakes until then.
type acceptTimes struct {
	net.Listener
	mu    sync.Mutex
	times []time.Time
	worst time.Duration
}

// watch measures how late the process wakes until ctx ends.
func (l *acceptTimes) watch(ctx context.Context) {
	const nap = 2 * time.Millisecond
	for ctx.Err() == nil {
		before := time.Now()
		time.Sleep(nap)
		l.mu.Lock()
		l.worst = max(l.worst, time.Since(before)-nap)
		l.mu.Unlock()
	}
}

// late returns the longest delay of the process.
func (l *acceptTimes) late() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worst
}

func (l *acceptTimes) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.times = append(l.times, time.Now())
		l.mu.Unlock()
	}
	return conn, err
}

func (l *acceptTimes) all() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.times...)
}
