//go:build slow

package pace

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestPaceUnnoticedRequests sends two requests to an unreachable site. A name that does not resolve
// uses no slot, because no site noticed the request. An attempt to connect uses one.
func TestPaceUnnoticedRequests(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Engine: "pace {\nrate 1/30s\nburst 1\nwait 0s\n}", Site: "mode off"})
	for range 2 {
		if a := g.MustFetch("Tester/1.0", "http://nobody.invalid/"); a.Status != http.StatusBadGateway {
			t.Errorf("a name that does not resolve: status %d: %s", a.Status, a.Body)
		}
	}
	closed := "http://" + rig.FreePort(t) + "/"
	if a := g.MustFetch("Tester/1.0", closed); a.Status != http.StatusBadGateway {
		t.Errorf("a closed port: status %d: %s", a.Status, a.Body)
	}
	rig.CheckRefusal(t, g.MustFetch("Tester/1.0", closed), 10*time.Second, 30*time.Second)
}

// TestPaceSlowToConnect lets a connection take longer than the interval while another request is
// sent. The first request then waits for another slot, or is refused if it must not be held. No
// byte of it is sent before.
func TestPaceSlowToConnect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, wait string
		want       int
		requests   int
	}{{"held", "10s", http.StatusOK, 2}, {"not held", "0s", http.StatusTooManyRequests, 1}} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%v", tt.name, h2), func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var times []time.Time
				origin := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					times = append(times, time.Now())
				}))
				origin.EnableHTTP2 = h2
				slow := &slowListener{Listener: origin.Listener, hold: 3 * time.Second}
				origin.Listener = slow
				origin.StartTLS()
				defer origin.Close()
				ca := filepath.Join(rig.TempDir(t), "ca.pem")
				if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: origin.Certificate().Raw}), 0o600); err != nil {
					t.Fatal(err)
				}
				g := rig.New(t, rig.Config{
					Engine: "pace {\nrate 1/2s\nburst 1\nwait " + tt.wait + "\n}", Egress: "trust_ca " + ca, Site: "mode off",
				})
				status := make(chan int, 1)
				go func() {
					w := g.Dial()
					a, _ := w.Ask(http.MethodGet, "GET "+origin.URL+"/slow HTTP/1.1\r\nHost: h\r\nUser-Agent: T/1\r\n\r\n")
					status <- a.Status
				}()
				rig.Eventually(t, "the slow connection", func() bool { return slow.accepted.Load() == 1 })
				time.Sleep(2200 * time.Millisecond) // until the next slot
				w := g.Dial()
				quick, err := w.Ask(http.MethodGet, "GET "+origin.URL+"/quick HTTP/1.1\r\nHost: h\r\nUser-Agent: T/1\r\n\r\n")
				if err != nil {
					t.Fatal(err)
				}
				// Over HTTP/2 both requests may use the slow connection; then the other one is too
				// late.
				if a, b := quick.Status, <-status; max(a, b) != tt.want || min(a, b) != http.StatusOK {
					t.Errorf("status %d and %d, want %d and %d", a, b, http.StatusOK, tt.want)
				}
				mu.Lock()
				defer mu.Unlock()
				if len(times) != tt.requests {
					t.Errorf("%d requests were sent, want %d", len(times), tt.requests)
				}
				// The server may read late, but never early.
				if least := rig.Shortest(times, 1); least < 2*time.Second-rig.Scheduling {
					t.Errorf("the two requests came %v apart, want at least 2s", least)
				}
			})
		}
	}
}

// slowListener delays the first connection before its handshake.
type slowListener struct {
	net.Listener
	hold     time.Duration
	accepted atomic.Int32
}

// Accept implements net.Listener.
func (l *slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.accepted.Add(1) == 1 {
		return &slowConn{Conn: conn, until: time.Now().Add(l.hold)}, nil
	}
	return conn, err
}

// slowConn does not read before its time.
type slowConn struct {
	net.Conn
	until time.Time
}

// Read implements net.Conn.
func (c *slowConn) Read(p []byte) (int, error) {
	time.Sleep(time.Until(c.until))
	return c.Conn.Read(p)
}
