package egress

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/crawlgate/crawlgate/egress/guard"
)

// proxyServer returns an upstream proxy with absolute form and CONNECT, and a log of its requests.
func proxyServer(t *testing.T, tlsToo bool, answer int) (*httptest.Server, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("Proxy-Authorization")
		mu.Lock()
		asked = append(asked, strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("Via"), user}, " "))
		mu.Unlock()
		if answer != 0 {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(answer)
			return
		}
		if r.Method != http.MethodConnect {
			r.RequestURI = ""
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			io.Copy(w, resp.Body)
			return
		}
		tunnel, err := Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		tunnel.Relay(r.Context(), up)
	})
	proto := "h1"
	if tlsToo {
		proto = "h2" // offer HTTP/2, which must not be used
	}
	return startServer(t, h, proto), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), asked...)
	}
}

// socksServer returns a SOCKS5 proxy (RFC 1928 and 1929) that records its requests in asked.
func socksServer(t *testing.T, asked chan<- string) *httptest.Server {
	t.Helper()
	return rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		read := func(n int) []byte { b := make([]byte, n); io.ReadFull(br, b); return b }
		hello := read(2)
		read(int(hello[1]))
		c.Write([]byte{5, 2})
		user := read(int(read(2)[1]))
		password := read(int(read(1)[0]))
		c.Write([]byte{1, 0})
		head := read(4)
		var host string
		switch head[3] {
		case 1:
			host = net.IP(read(4)).String()
		case 3:
			host = string(read(int(read(1)[0])))
		}
		port := binary.BigEndian.Uint16(read(2))
		asked <- fmt.Sprintf("%s:%s %s:%d", user, password, host, port)
		up, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
			return
		}
		defer up.Close()
		c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		relay(t.Context(), replay(c, br, c), up, &watch{idle: defaultIdle})
	})
}

func siteResolver() *names {
	return &names{addrs: map[string][]string{"site.test": {"127.0.0.1"}, "inside.test": {"127.0.0.1", "10.0.0.1"}, "direct.test": {"127.0.0.1"}}}
}

func withUser(t *testing.T, raw string) *url.URL {
	t.Helper()
	u := mustURL(t, raw)
	u.User = url.UserPassword("u", "p")
	return u
}

// TestUpstreamHTTP checks that requests and tunnels go through the proxy, by name, with its
// credentials and the gateway's Via.
func TestUpstreamHTTP(t *testing.T) {
	t.Parallel()
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("u:p"))
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello ", r.Header.Get("Proxy-Authorization"))
	})
	for _, secure := range []bool{false, true} {
		proxy, asked := proxyServer(t, secure, 0)
		plain, tlsOrigin := startServer(t, hello, "h1"), startServer(t, hello, "h2")
		tr := newTestTransport(t, TransportConfig{
			Dialer:    &Dialer{Guard: loopbackGuard(), Resolver: &names{addrs: map[string][]string{"localhost": {"127.0.0.1"}, "example.com": {"127.0.0.1"}}}},
			RootCAs:   certPool(proxy, tlsOrigin),
			Upstreams: []Upstream{{URL: withUser(t, proxy.URL)}},
		})
		for _, target := range []string{
			"http://localhost:" + itoa(portOf(t, plain)), "https://127.0.0.1:" + itoa(portOf(t, tlsOrigin)),
		} {
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", target+"/a", nil))
			if err != nil {
				t.Fatalf("secure %v, %s: %v", secure, target, err)
			}
			if got := readAll(t, resp); got != "hello " && !strings.HasPrefix(target, "http:") {
				t.Errorf("%s: got %q", target, got)
			}
		}
		conn, err := tr.DialTunnel(t.Context(), "localhost", portOf(t, plain))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
		if err := closeWrite(conn); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "hello ") {
			t.Errorf("tunnel: got %q, error %v", got, err)
		}
		conn.Close()
		want := []string{
			fmt.Sprintf("GET http://localhost:%d/a 1.1 %s %s", portOf(t, plain), tr.via, basic),
			fmt.Sprintf("CONNECT 127.0.0.1:%d 1.1 %s %s", portOf(t, tlsOrigin), tr.via, basic),
			fmt.Sprintf("CONNECT localhost:%d 1.1 %s %s", portOf(t, plain), tr.via, basic),
		}
		if got := asked(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("secure %v: the proxy got\n%s, want\n%s", secure, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestUpstreamSOCKS(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	socks := socksServer(t, asked)
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), "h1")
	u := withUser(t, "socks5://"+socks.Listener.Addr().String())
	tr := newTestTransport(t, TransportConfig{
		Dialer:    &Dialer{Guard: loopbackGuard(), Resolver: siteResolver()},
		Upstreams: []Upstream{{URL: u}},
	})
	want := fmt.Sprintf("u:p site.test:%d", portOf(t, origin))
	resp, err := tr.RoundTrip(request(t, t.Context(), "GET", "http://site.test:"+itoa(portOf(t, origin)), nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); got != "hello" || <-asked != want {
		t.Errorf("got %q", got)
	}
	conn, err := tr.DialTunnel(t.Context(), "site.test", portOf(t, origin))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := <-asked; got != want {
		t.Errorf("the proxy got %q, want %q", got, want)
	}
	fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
	if err := closeWrite(conn); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "hello") {
		t.Errorf("tunnel: got %q, error %v", got, err)
	}
}

// TestUpstreamKeepsGuard checks that a target that this gateway must not dial does not reach a
// proxy either. The proxy gets no request at all.
func TestUpstreamKeepsGuard(t *testing.T) {
	t.Parallel()
	proxy, asked := proxyServer(t, false, 0)
	socksAsked := make(chan string, 1)
	socks := socksServer(t, socksAsked)
	for _, raw := range []string{proxy.URL, "socks5://" + socks.Listener.Addr().String()} {
		tr := newTestTransport(t, TransportConfig{
			Dialer:    &Dialer{Guard: loopbackGuard(), Resolver: siteResolver()},
			Upstreams: []Upstream{{URL: mustURL(t, raw)}},
		})
		tests := map[string]Kind{"inside.test": KindForbidden, "10.0.0.1": KindForbidden, "none.test": KindDNS}
		for host, want := range tests {
			for _, scheme := range []string{"http", "https"} {
				_, err := tr.RoundTrip(request(t, t.Context(), "POST", scheme+"://"+host+"/", strings.NewReader("x")))
				if got := classify(err, stageConnect); got.Kind != want {
					t.Errorf("%s %s: error %v, want the kind %v", scheme, host, err, want)
				}
			}
			_, err := tr.DialTunnel(t.Context(), host, 443)
			if got := ClassifyDial(err); got.Kind != want {
				t.Errorf("tunnel to %s: error %v, want the kind %v", host, err, want)
			}
		}
	}
	if got := asked(); got != nil || len(socksAsked) != 0 {
		t.Errorf("the proxy got %q, want nothing", got)
	}
}

// TestUpstreamByHost checks that the first matching proxy is used, that other hosts are reached
// directly, and that a proxy's address is not open as a target.
func TestUpstreamByHost(t *testing.T) {
	t.Parallel()
	proxy, asked := proxyServer(t, false, 0)
	origin := startServer(t, http.NotFoundHandler(), "h1")
	resolver := siteResolver()
	strict := &Dialer{Resolver: resolver, Guard: &guard.Guard{AllowPrivate: prefixes("127.0.0.1/32")}}
	tr := newTestTransport(t, TransportConfig{Dialer: strict, Upstreams: []Upstream{
		{URL: mustURL(t, proxy.URL), Match: func(h string) bool { return h == "other.test" }},
		{URL: mustURL(t, "http://127.0.0.1:1"), Match: func(h string) bool { return h == "dead.test" }},
	}})
	resp, err := tr.RoundTrip(request(t, t.Context(), "GET", "http://direct.test:"+itoa(portOf(t, origin)), nil))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, resp)
	if got := asked(); got != nil {
		t.Errorf("the proxy got %q, want nothing", got)
	}
	resolver.addrs["dead.test"] = []string{"127.0.0.1"}
	_, err = tr.RoundTrip(request(t, t.Context(), "GET", "http://dead.test/", nil))
	if got := classify(err, stageConnect); got.Kind != KindUpstream {
		t.Errorf("dead proxy: %v has the kind %v, want upstream", err, got.Kind)
	}
	closed := newTestTransport(t, TransportConfig{
		Dialer:    &Dialer{Resolver: resolver}, // no private address is open
		Upstreams: []Upstream{{URL: mustURL(t, proxy.URL), Match: func(h string) bool { return h == "8.8.8.8" }}},
	})
	_, err = closed.RoundTrip(request(t, t.Context(), "GET", proxy.URL, nil))
	checkRefusal(t, "the proxy as a target", err, "loopback")
	closed.dialer.Guard = &guard.Guard{Listener: func(ap netip.AddrPort, _ bool) guard.Listener {
		if ap == proxyAddr(t, proxy) {
			return guard.ListenerGateway
		}
		return guard.NoListener
	}}
	_, err = closed.RoundTrip(request(t, t.Context(), "GET", "http://8.8.8.8/", nil))
	checkRefusal(t, "a proxy that is this gateway", err, guard.ClassOwn)
}

// TestUpstreamRefuses checks that a proxy's refusal of a tunnel is reported as the proxy's, and
// that its 407 is not forwarded.
func TestUpstreamRefuses(t *testing.T) {
	t.Parallel()
	for _, status := range []int{403, 407, 502} {
		proxy, _ := proxyServer(t, false, status)
		tr := newTestTransport(t, TransportConfig{
			Dialer:    &Dialer{Guard: loopbackGuard(), Resolver: siteResolver()},
			Upstreams: []Upstream{{URL: mustURL(t, proxy.URL)}},
		})
		_, err := tr.RoundTrip(request(t, t.Context(), "GET", "https://site.test/", nil))
		told := fmt.Sprintf(" answered %d", status)
		if got := classify(err, stageConnect); got.Kind != KindUpstream || !strings.HasSuffix(got.Error(), told) {
			t.Errorf("%d: error %v, want one of the proxy", status, err)
		}
		_, err = tr.DialTunnel(t.Context(), "site.test", 443)
		if got := ClassifyDial(err); got.Kind != KindUpstream || !strings.HasSuffix(got.Error(), told) {
			t.Errorf("%d: tunnel: error %v, want one of the proxy", status, err)
		}
		var res Result
		w := newDiscard()
		f := &Forwarder{Transport: tr}
		got := forward(f, w, request(t, t.Context(), "GET", "http://site.test/", nil), mustURL(t, "http://site.test/"), &res)
		if status == 407 && (got == nil || got.Kind != KindUpstream || w.written) {
			t.Errorf("a 407 for a request: error %v", got)
		}
	}
}

func TestNewTransportRefuses(t *testing.T) {
	t.Parallel()
	d := new(Dialer)
	for _, raw := range []string{"ftp://h:1", "http://", "http://h/path", "http://h:0", "http://h?q", "socks4://h:1", "//h"} {
		if _, err := NewTransport(TransportConfig{Dialer: d, Upstreams: []Upstream{{URL: withUser(t, raw)}}}); err == nil {
			t.Errorf("NewTransport accepts the proxy %q", raw)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: the error %v contains the password", raw, err)
		}
	}
	if _, err := NewTransport(TransportConfig{Dialer: d, Upstreams: []Upstream{{}}}); err == nil {
		t.Error("NewTransport accepts a proxy without a URL")
	}
	for _, raw := range []string{"http://h", "https://h:8443/", "socks5://[::1]", "socks5h://h:9"} {
		if _, err := NewTransport(TransportConfig{Dialer: d, Upstreams: []Upstream{{URL: mustURL(t, raw)}}}); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestLooped(t *testing.T) {
	t.Parallel()
	tr := newTestTransport(t, TransportConfig{})
	tr.via = "crawlgate-1"
	for via, want := range map[string]bool{
		"": false, "1.1 other": false, "1.1 crawlgate-1": true, "1.0 a, HTTP/1.1 Crawlgate-1 (x)": true,
		"crawlgate-1": false, "1.1 crawlgate-12": false, "1.1 crawlgate-1:80": false,
	} {
		if got := tr.Looped(http.Header{"Via": {"1.1 first", via}}); got != want {
			t.Errorf("Looped with Via %q = %v, want %v", via, got, want)
		}
	}
	a, b := newTestTransport(t, TransportConfig{}), newTestTransport(t, TransportConfig{})
	if a.via == b.via || a.via == "" {
		t.Errorf("two gateways have the names %q and %q", a.via, b.via)
	}
}

func TestTrustedRoots(t *testing.T) {
	t.Parallel()
	if _, err := TrustedRoots([]byte("no PEM")); err == nil {
		t.Error("TrustedRoots accepts a text without a certificate")
	}
	if pool, err := TrustedRoots(); err != nil || pool == nil {
		t.Errorf("TrustedRoots() = %v, %v", pool, err)
	}
}

// TestWays checks RFC 4559 section 6: credentials that bind a connection get their own, both
// directly and through upstreams.
func TestWays(t *testing.T) {
	t.Parallel()
	w := pairOf(new(http.Transport), nil, nil)
	for field, alone := range map[string]bool{
		"": false, "Basic dTpw": false, "Bearer Negotiate": false, "NTLMv2 x": false, "Negotiated x": false,
		"NTLM": true, "NTLM\tx": true, "ntlm x": true, "NEGOTIATE x": true, " Negotiate x": true,
	} {
		r := &http.Request{Header: http.Header{"Authorization": {"Basic x", field}}}
		if got := w.of(r) == w.single; got != alone {
			t.Errorf("%q: alone = %t, want %t", field, got, alone)
		}
	}
}

// TestIdleHTTP2IsBounded checks the bound on idle HTTP/2 connections. net/http bounds only those of
// HTTP/1.1.
func TestIdleHTTP2IsBounded(t *testing.T) {
	t.Parallel()
	var open, most atomic.Int64
	origin := httptest.NewUnstartedServer(http.NotFoundHandler())
	origin.EnableHTTP2 = true
	origin.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state { //nolint:exhaustive // other states change nothing
		case http.StateNew:
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed:
			open.Add(-1)
		}
	}
	origin.StartTLS()
	t.Cleanup(origin.Close)
	const sites, bound = 12, 3
	resolver := &names{addrs: make(map[string][]string)}
	tr := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: certPool(origin), ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}
	tr.DialContext = bounded(&Dialer{Guard: loopbackGuard(), Resolver: resolver}, tr, bound)
	t.Cleanup(tr.CloseIdleConnections)
	for i := range sites {
		host := "site" + itoa(i) + ".test"
		resolver.addrs[host] = []string{"127.0.0.1"}
		resp, err := tr.RoundTrip(request(t, t.Context(), "POST", "https://"+host+":"+itoa(portOf(t, origin)), nil))
		if err != nil {
			t.Fatal(err)
		}
		if readAll(t, resp); resp.ProtoMajor != 2 {
			t.Fatal(resp.Proto)
		}
	}
	// The server notices the end of some connections a moment later.
	if n := most.Load(); n > sites/2 {
		t.Errorf("%d connections were open at a time with the bound %d, want at most half of the sites", n, bound)
	}
}

// TestUpstreamFailures checks that a failure of an upstream proxy is reported without its name, and
// differs from failures of a site behind it.
func TestUpstreamFailures(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{407: "upstream", 403: "upstream", 502: "connect", 503: "connect"} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer proxy.Close()
		tr := newTestTransport(t, TransportConfig{Dialer: strictDialer(), Upstreams: []Upstream{{URL: mustURL(t, proxy.URL)}}})
		checkUpstream(t, tr, "https://8.8.8.8/robots.txt", want, fmt.Sprintf("answered %d", status))
		if !tr.Proxied("8.8.8.8") {
			t.Error("Proxied is false with an upstream proxy")
		}
		_, err := tr.DialTunnel(t.Context(), "8.8.8.8", 443)
		var up interface{ Upstream() (cause, text string) }
		if !errors.As(err, &up) {
			t.Fatal(err)
		}
		if cause, text := up.Upstream(); cause != want || text != fmt.Sprintf("answered %d", status) {
			t.Errorf("tunnel: cause %q, text %q, want %q", cause, text, want)
		}
	}
	for _, scheme := range []string{"http", "https", "socks5"} {
		dead := mustURL(t, fmt.Sprintf("%s://127.0.0.1:%d", scheme, deadPort(t)))
		tr := newTestTransport(t, TransportConfig{Dialer: strictDialer(), Upstreams: []Upstream{{URL: dead}}})
		checkUpstream(t, tr, "http://8.8.8.8/robots.txt", "upstream", "cannot be used")
		if tr.Proxied("8.8.8.8") != (scheme != "socks5") {
			t.Errorf("%s: proxied is %v", scheme, tr.Proxied("8.8.8.8"))
		}
	}
	direct := newTestTransport(t, TransportConfig{Dialer: strictDialer()})
	checkUpstream(t, direct, "http://10.0.0.1/", "", "")
	if direct.Proxied("8.8.8.8") {
		t.Error("Proxied is true without an upstream proxy")
	}
}

func strictDialer() *Dialer { return &Dialer{Guard: &guard.Guard{}} }

func checkUpstream(t *testing.T, tr *Transport, url, cause, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatalf("%s: status %d, want an error", url, resp.StatusCode)
	}
	var up interface{ Upstream() (cause, text string) }
	gotCause, gotText := "", ""
	if errors.As(err, &up) {
		gotCause, gotText = up.Upstream()
	}
	if gotCause != cause || gotText != text {
		t.Errorf("%s: cause %q, text %q (%v), want %q, %q", url, gotCause, gotText, err, cause, text)
	}
}
