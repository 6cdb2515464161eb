package integration

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crawlgate/crawlgate/enforce"
)

// lastNameServer counts the addresses that fakeDNS gave away.
var lastNameServer atomic.Uint32

// fakeDNS is a name server with names of its own. A gateway under its command knows it as the only one, with the search
// list "test" and the hosts file given. It takes a mount namespace and port 53, so it needs root on Linux.
type fakeDNS struct {
	command []string            // for gatewayConfig.Wrap
	names   map[string][]string // "*" for all others

	mu    sync.Mutex
	asked []string
}

func startDNS(t *testing.T, hosts string, names map[string][]string) *fakeDNS {
	t.Helper()
	unshare := need(t, "unshare")
	d := &fakeDNS{names: names}
	var addr string
	var conn net.PacketConn
	err := error(syscall.EADDRINUSE)
	for errors.Is(err, syscall.EADDRINUSE) && lastNameServer.Load() < 250 { // by the tests of another checkout
		addr = fmt.Sprintf("127.53.0.%d", lastNameServer.Add(1))
		conn, err = net.ListenPacket("udp", addr+":53")
	}
	if err == nil {
		err = exec.CommandContext(t.Context(), unshare, "--mount", "true").Run()
	}
	if err != nil {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			t.Fatalf("a name server of the test's own is required: %v", err)
		}
		t.Skipf("no name server of the test's own: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve(conn)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	dir := tempDir(t)
	files := []string{filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")}
	for i, text := range []string{"search test\nnameserver " + addr + "\n", "127.0.0.1 localhost\n" + hosts} {
		if err := os.WriteFile(files[i], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/hosts && shift && exec "$@"`
	d.command = append([]string{unshare, "--mount", "sh", "-c", script}, files...)
	return d
}

// serve answers until the connection is closed.
func (d *fakeDNS) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
			continue
		}
		if answer, err := d.answer(m); err == nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

func (d *fakeDNS) answer(m dnsmessage.Message) ([]byte, error) {
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	d.mu.Lock()
	d.asked = append(d.asked, name)
	d.mu.Unlock()
	addrs, known := d.names[strings.TrimSuffix(name, ".")]
	if !known {
		addrs, known = d.names["*"]
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range addrs {
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		switch addr := netip.MustParseAddr(text); {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return reply.Pack()
}

// questions are the names that were asked for, each once.
func (d *fakeDNS) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Clone(d.asked)
	slices.Sort(names)
	return slices.Compact(names)
}

// startPlain is an origin without robots.txt at a port of 127.0.0.1, whatever its name.
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

// TestNamesAreAbsolute asks for a denied host by a name that is relative to the search list of resolv.conf.
func TestNamesAreAbsolute(t *testing.T) {
	t.Parallel()
	port, asked := startPlain(t)
	for _, site := range []string{"deny pub.test", "deny pub.test\nmode off", "deny pub.test\nmode off\nconnect tunnel"} {
		dns := startDNS(t, "127.0.0.1 in-hosts www.in-hosts.test\n", map[string][]string{"pub.test": {"127.0.0.1"}, "open.test": {"127.0.0.1"}})
		g := startGateway(t, gatewayConfig{Engine: unpaced, Site: site, Wrap: dns.command})
		for way, ask := range g.through(http.MethodGet, "pub.test:"+port, "/") {
			if a, err := ask(); err != nil || a.status != http.StatusForbidden || !strings.Contains(a.body, string(enforce.ReasonOperatorDeny)) {
				t.Errorf("%q: pub.test, %s: %d, %v: %s", site, way, a.status, err, a.body)
			}
		}
		for way, ask := range g.through(http.MethodGet, "pub:"+port, "/") {
			if a, err := ask(); err != nil || a.status < 400 || !strings.Contains(a.header.Get("Proxy-Status"), "crawlgate; error=") {
				t.Errorf("%q: pub, %s: %d, %v: %s", site, way, a.status, err, a.body)
			}
		}
		if got := g.mustFetch("Tester/1.0", "ftp://pub:"+port+"/"); got.status < 400 {
			t.Errorf("%q: ftp: %d %s", site, got.status, got.body)
		}
		if names := dns.questions(); !slices.Equal(names, []string{"pub."}) {
			t.Errorf("%q: the name server was asked for %q", site, names)
		}
		if n := asked.Swap(0); n > 0 {
			t.Errorf("%q: the denied host was asked %d times", site, n)
		}
		for _, host := range []string{"localhost", "in-hosts", "www.in-hosts.test", "open.test"} {
			if a := g.mustFetch("Tester/1.0", "http://"+host+":"+port+"/"); a.status != http.StatusOK {
				t.Errorf("%q: %s: %d %s", site, host, a.status, a.body)
			}
		}
		asked.Store(0)
	}
}

// TestNamesWithMixedAddresses asks for names with a public address and one that the operator has opened.
func TestNamesWithMixedAddresses(t *testing.T) {
	t.Parallel()
	port, asked := startPlain(t)
	dns := startDNS(t, "", map[string][]string{
		"mixed.test": {"8.8.8.8", "127.0.0.1"}, "mixed6.test": {"2606:4700::1111", "127.0.0.1"}, "local.test": {"127.0.0.1", "127.0.0.2"},
		"admin.test": {"0.0.0.0"},
	})
	for _, site := range []string{"", "mode off", "mode off\nconnect tunnel"} {
		g := startGateway(t, gatewayConfig{Engine: unpaced, Site: site, Wrap: dns.command})
		_, own, _ := net.SplitHostPort(g.addr)
		for _, authority := range []string{"mixed.test:" + port, "mixed6.test:" + port, "admin.test:" + own} {
			for way, ask := range g.through(http.MethodGet, authority, "/") {
				a, err := ask()
				refusedAsOwn(t, authority+" "+way, a, err)
			}
			if a := g.mustFetch("Tester/1.0", "ftp://"+authority+"/"); a.status != http.StatusForbidden {
				t.Errorf("%q: ftp://%s: %d %s", site, authority, a.status, a.body)
			}
		}
		if n := asked.Load(); n > 0 {
			t.Errorf("%q: the address inside was asked %d times", site, n)
		}
		for _, l := range g.logs(12) {
			switch {
			case l.Request.Method == http.MethodConnect:
			case strings.Contains(l.Request.URI, "mixed") &&
				(l.Robots.Reason != enforce.ReasonForbiddenAddress || !strings.Contains(l.Robots.Detail, "DNS rebinding")),
				strings.Contains(l.Request.URI, "admin") && l.Robots.Reason != enforce.ReasonOwnListener:
				t.Errorf("%q: logged as %s", site, l.raw)
			}
		}
		if a := g.mustFetch("Tester/1.0", "http://local.test:"+port+"/"); a.status != http.StatusOK {
			t.Errorf("%q: local.test: %d %s", site, a.status, a.body)
		}
		asked.Store(0)
	}
}
