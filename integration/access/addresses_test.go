//go:build slow

package access

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// addressSpellings returns the lines of testdata/addresses.txt for the port of a canary.
func addressSpellings(t *testing.T, port string) (authorities []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "addresses.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "", strings.HasPrefix(line, "# "):
		case strings.Contains(line, "PORT"):
			authorities = append(authorities, strings.ReplaceAll(line, "PORT", port))
		default:
			authorities = append(authorities, line+":"+port)
		}
	}
	return authorities
}

// startCanary listens at a port of all addresses of this machine and counts its connections.
func startCanary(t *testing.T) (port string, reached *atomic.Int64) {
	t.Helper()
	reached = new(atomic.Int64)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = conn.SetDeadline(time.Now().Add(rig.Patience))
			_, _ = conn.Read(make([]byte, 4096)) // unread data would reset the connection on close
			_, _ = conn.Write([]byte("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 6\r\n\r\ncanary"))
			_ = conn.Close()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, reached
}

// TestForbiddenAddressesInEverySpelling requests each spelling in absolute form, with each scheme,
// and inside a CONNECT tunnel. The requests must not reach a canary that listens at all addresses
// of this machine, unless the operator has opened every address.
func TestForbiddenAddressesInEverySpelling(t *testing.T) {
	t.Parallel()
	port, reached := startCanary(t)
	dns := rig.StartDNS(t, "127.0.0.1 localhost.localdomain canary\n::1 localhost ip6-localhost ip6-loopback\n", map[string][]string{"*": {"127.0.0.1", "::1"}})
	spellings := addressSpellings(t, port)
	if len(spellings) < 300 {
		t.Fatalf("%d spellings, want at least 300", len(spellings))
	}
	for _, site := range []string{"", "mode off\nconnect tunnel"} {
		g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: site, Public: true, Wrap: dns.Command})
		counts := make(map[int]int)
		for _, authority := range spellings {
			for way, ask := range everyWay(g, authority) {
				a, err := ask()
				counts[a.Status]++
				// Some names have no spelling that DNS knows. For FTP, any status is right if
				// nothing is reached.
				noName := a.Status == http.StatusBadGateway && strings.Contains(a.Header.Get("Proxy-Status"), "error=dns_error")
				if err != nil || a.Status != http.StatusBadRequest && a.Status != http.StatusForbidden && !noName && way != "ftp" {
					t.Errorf("%q: %q, %s: status %d, error %v, want a refusal: %.100s", site, authority, way, a.Status, err, a.Body)
				}
				if n := reached.Swap(0); n > 0 {
					t.Errorf("%q: %q, %s: the canary was reached %d times", site, authority, way, n)
				}
			}
		}
		t.Logf("%q: %d spellings, answers by status: %v", site, len(spellings), counts)
	}
	open := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "mode off", Egress: rig.Everywhere, Wrap: dns.Command})
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "[::1]", "localhost", "canary.test", "0.0.0.0", "[::]"} {
		for way, ask := range open.Through(http.MethodGet, host+":"+port, "/") {
			if a, err := ask(); err != nil || a.Body != "canary" || reached.Swap(0) == 0 {
				t.Errorf("%s, %s: status %d, error %v, want an answer of the canary", host, way, a.Status, err)
			}
		}
	}
}

// everyWay returns a function for each way to request an authority as it is written.
func everyWay(g *rig.Gateway, authority string) map[string]func() (rig.Answer, error) {
	ways := g.Through(http.MethodGet, authority, "/")
	for _, scheme := range []string{"https", "ftp"} {
		ways[scheme] = func() (rig.Answer, error) {
			w := g.Dial()
			defer w.Close()
			return w.Ask(http.MethodGet, "GET "+scheme+"://"+authority+"/ HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n")
		}
	}
	return ways
}
