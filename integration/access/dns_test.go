//go:build slow

package access

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// startPlain starts a site without robots.txt on 127.0.0.1 that answers for every name.
func startPlain(t *testing.T) (port string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, asked
}

// TestNamesAreAbsolute checks that the search list of resolv.conf does not turn a relative name
// into a denied host.
func TestNamesAreAbsolute(t *testing.T) {
	t.Parallel()
	port, asked := startPlain(t)
	for _, site := range []string{"deny pub.test", "deny pub.test\nmode off", "deny pub.test\nmode off\nconnect tunnel"} {
		dns := rig.StartDNS(t, "127.0.0.1 in-hosts www.in-hosts.test\n", map[string][]string{"pub.test": {"127.0.0.1"}, "open.test": {"127.0.0.1"}})
		g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: site, Wrap: dns.Command})
		for way, ask := range g.Through(http.MethodGet, "pub.test:"+port, "/") {
			if a, err := ask(); err != nil || a.Status != http.StatusForbidden || !strings.Contains(a.Body, string(enforce.ReasonOperatorDeny)) {
				t.Errorf("%q: pub.test, %s: status %d, error %v, want a refusal by the operator: %s", site, way, a.Status, err, a.Body)
			}
		}
		for way, ask := range g.Through(http.MethodGet, "pub:"+port, "/") {
			if a, err := ask(); err != nil || a.Status < 400 || !strings.Contains(a.Header.Get("Proxy-Status"), "crawlgate; error=") {
				t.Errorf("%q: pub, %s: status %d, error %v, want an error of the gateway: %s", site, way, a.Status, err, a.Body)
			}
		}
		if got := g.MustFetch("Tester/1.0", "ftp://pub:"+port+"/"); got.Status < 400 {
			t.Errorf("%q: ftp: status %d, want an error: %s", site, got.Status, got.Body)
		}
		if names := dns.Questions(); !slices.Equal(names, []string{"pub."}) {
			t.Errorf(`%q: the name server was asked for %q, want only "pub."`, site, names)
		}
		if n := asked.Swap(0); n > 0 {
			t.Errorf("%q: the denied host was asked %d times", site, n)
		}
		for _, host := range []string{"localhost", "in-hosts", "www.in-hosts.test", "open.test"} {
			if a := g.MustFetch("Tester/1.0", "http://"+host+":"+port+"/"); a.Status != http.StatusOK {
				t.Errorf("%q: %s: status %d, want 200: %s", site, host, a.Status, a.Body)
			}
		}
		asked.Store(0)
	}
}

// TestNamesWithMixedAddresses requests names that have a public address and an address that the
// operator has opened.
func TestNamesWithMixedAddresses(t *testing.T) {
	t.Parallel()
	port, asked := startPlain(t)
	dns := rig.StartDNS(t, "", map[string][]string{
		"mixed.test": {"8.8.8.8", "127.0.0.1"}, "mixed6.test": {"2606:4700::1111", "127.0.0.1"}, "local.test": {"127.0.0.1", "127.0.0.2"},
		"admin.test": {"0.0.0.0"},
	})
	for _, site := range []string{"", "mode off", "mode off\nconnect tunnel"} {
		g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: site, Wrap: dns.Command})
		_, own, _ := net.SplitHostPort(g.Addr)
		for _, authority := range []string{"mixed.test:" + port, "mixed6.test:" + port, "admin.test:" + own} {
			for way, ask := range g.Through(http.MethodGet, authority, "/") {
				a, err := ask()
				refusedAsOwn(t, authority+" "+way, a, err)
			}
			if a := g.MustFetch("Tester/1.0", "ftp://"+authority+"/"); a.Status != http.StatusForbidden {
				t.Errorf("%q: ftp://%s: status %d, want 403: %s", site, authority, a.Status, a.Body)
			}
		}
		if n := asked.Load(); n > 0 {
			t.Errorf("%q: the private address got %d requests", site, n)
		}
		for _, l := range g.Logs(12) {
			switch {
			case l.Request.Method == http.MethodConnect:
			case strings.Contains(l.Request.URI, "mixed") &&
				(l.Robots.Reason != enforce.ReasonForbiddenAddress || !strings.Contains(l.Robots.Detail, "DNS rebinding")),
				strings.Contains(l.Request.URI, "admin") && l.Robots.Reason != enforce.ReasonOwnListener:
				t.Errorf("%q: the log line is %s", site, l.Raw)
			}
		}
		if a := g.MustFetch("Tester/1.0", "http://local.test:"+port+"/"); a.Status != http.StatusOK {
			t.Errorf("%q: local.test: status %d, want 200: %s", site, a.Status, a.Body)
		}
		asked.Store(0)
	}
}
