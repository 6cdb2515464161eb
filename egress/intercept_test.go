package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/egress/mint"
	"github.com/crawlgate/crawlgate/internal/testca"
)

// intercepting is a gateway that accepts every CONNECT and serves the requests inside.
type intercepting struct {
	*httptest.Server
	*Interceptor
	authority *testca.Authority
	minter    *mint.Minter
	ended     chan error // the result of serving each tunnel
}

// describe answers with a description of the request.
func describe(w http.ResponseWriter, r *http.Request) {
	p := ConnectFrom(r.Context())
	if err := p.Resolve(r); err != nil {
		status := http.StatusMisdirectedRequest
		if errors.Is(err, ErrNested) {
			status = http.StatusBadRequest
		}
		http.Error(w, err.Error(), status)
		return
	}
	fmt.Fprintf(w, "%s %s %s %v %v", r.Method, r.RequestURI, r.Proto, r.RemoteAddr == p.Outer.RemoteAddr, p.Value)
}

func startIntercepting(tb testing.TB, proto string, h http.HandlerFunc) *intercepting {
	tb.Helper()
	a := testca.New(tb)
	m := newMinter(tb, a)
	g := &intercepting{authority: a, minter: m, ended: make(chan error, 1000)}
	g.Interceptor = NewInterceptor(&http.Server{Handler: h})
	g.Server = startServer(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.ended <- g.serveConnect(w, r) }), proto)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
	})
	return g
}

func (g *intercepting) serveConnect(w http.ResponseWriter, r *http.Request) error {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		return err
	}
	n, err := guard.ParsePort(port)
	if err != nil {
		return err
	}
	tunnel, err := Accept(w, r)
	if err != nil {
		return err
	}
	p := &ConnectContext{Host: strings.ToLower(host), Port: n, Outer: r, Minter: g.minter, Value: "value"}
	switch first := tunnel.First(r.Context(), 5*time.Second); first {
	case FirstTLS:
		return g.ServeTLS(r.Context(), tunnel, p)
	case FirstHTTP:
		return g.ServePlain(r.Context(), tunnel, p)
	default:
		tunnel.Close()
		return fmt.Errorf("the tunnel began with %v", first)
	}
}

// dial opens a tunnel to an authority.
func (g *intercepting) dial(tb testing.TB, authority string) halfConn {
	tb.Helper()
	resp, c := connect(tb, g.Server, authority)
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("CONNECT %s: %s", authority, resp.Status)
	}
	return c
}

// client returns an HTTP client with TLS connections inside tunnels through the gateway.
func (g *intercepting) client(tb testing.TB, c *tls.Config) *http.Client {
	tb.Helper()
	c.RootCAs = g.authority.Pool()
	tr := &http.Transport{
		TLSClientConfig:   c,
		ForceAttemptHTTP2: c.NextProtos == nil,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			return &duplex{g.dial(tb, addr)}, nil //nolint:contextcheck // a tunnel outlives the request that it was opened for
		},
	}
	tb.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestInterceptRequests checks that HTTP/1.1 and HTTP/2 work inside a tunnel over CONNECT of both
// versions, with one tunnel for all requests.
func TestInterceptRequests(t *testing.T) {
	t.Parallel()
	for _, outer := range []string{"h1", "h2"} {
		for inner, config := range map[string]*tls.Config{
			"HTTP/2.0": {}, "HTTP/1.1": {NextProtos: []string{"http/1.1"}},
		} {
			g := startIntercepting(t, outer, describe)
			c := g.client(t, config)
			for i := range 3 {
				resp := send(t, c, request(t, t.Context(), "POST", "https://site.example/a%2Fb?q", strings.NewReader("body")))
				if got, want := readAll(t, resp), "POST https://site.example/a%2Fb?q "+inner+" true value"; got != want {
					t.Errorf("outer %s, request %d: %q, want %q", outer, i, got, want)
				}
			}
			c.CloseIdleConnections()
			if err := <-g.ended; err != nil {
				t.Error(err)
			}
			if g.minter.Len() != 1 || len(g.ended) != 0 {
				t.Errorf("%d leaves made, %d tunnels ended; want 1 and 0", g.minter.Len(), len(g.ended))
			}
		}
	}
}

// TestInterceptAuthorities checks authorities with literal addresses, ports and upper case, with
// and without SNI.
func TestInterceptAuthorities(t *testing.T) {
	t.Parallel()
	g := startIntercepting(t, "h1", describe)
	tests := []struct {
		authority, sni, host string
		want                 string // the inner request's URL; "" if the handshake is refused
	}{
		{"site.example:443", "site.example", "site.example", "https://site.example/"},
		{"site.example:443", "SITE.Example", "SITE.Example", "https://site.example/"},
		{"SITE.example:443", "site.example", "site.example:443", "https://site.example/"},
		{"site.example:443", "", "site.example", "https://site.example/"},
		{"site.example:8443", "site.example", "site.example:8443", "https://site.example:8443/"},
		{"site.example:8443", "site.example", "site.example", "https://site.example:8443/"},
		{"192.0.2.1:443", "", "192.0.2.1", "https://192.0.2.1/"},
		{"[2001:db8::1]:443", "", "[2001:db8::1]", "https://[2001:db8::1]/"},
		{"[2001:db8::1]:8443", "", "[2001:DB8:0::1]:8443", "https://[2001:db8::1]:8443/"},
		{"site.example:443", "other.example", "site.example", ""},
		{"site.example:443", "sub.site.example", "site.example", ""},
		{"192.0.2.1:443", "site.example", "192.0.2.1", ""},
	}
	for _, tt := range tests {
		c := g.dial(t, tt.authority)
		host, _, _ := net.SplitHostPort(tt.authority)
		err := speakTLS(c, tt.sni, func(state tls.ConnectionState) error { return verifyFor(state, g.authority, strings.ToLower(host)) }, func(conn net.Conn) {
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.host)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s: %v", tt.authority, err)
				return
			}
			if got := readAll(t, resp); !strings.HasPrefix(got, "GET "+tt.want+" HTTP/1.1") {
				t.Errorf("%s, Host %s: %q, want %s", tt.authority, tt.host, got, tt.want)
			}
		})
		c.Close()
		ended := <-g.ended
		if tt.want != "" {
			if err != nil || ended != nil {
				t.Errorf("%s, SNI %q: client error %v, gateway error %v", tt.authority, tt.sni, err, ended)
			}
			continue
		}
		failed, ok := errors.AsType[*HandshakeError](ended)
		if !ok || failed.Reason != HandshakeName || !strings.Contains(fmt.Sprint(err), "unrecognized name") {
			t.Errorf("%s, SNI %q: client error %v, gateway error %v, want an unrecognized name", tt.authority, tt.sni, err, ended)
		}
	}
}

// speakTLS makes a handshake as a client and then calls talk.
func speakTLS(c halfConn, sni string, verify func(tls.ConnectionState) error, talk func(net.Conn)) error {
	client := tls.Client(&duplex{c}, &tls.Config{ServerName: sni, InsecureSkipVerify: true, VerifyConnection: verify})
	if err := client.Handshake(); err != nil {
		return err
	}
	talk(client)
	return nil
}

func verifyFor(state tls.ConnectionState, a *testca.Authority, host string) error {
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: host, Roots: a.Pool(), Intermediates: between})
	return err
}

// TestInterceptAddressAsSNI sends a literal address as SNI, like lftp, lynx, w3m, Scrapy, axios and
// others, against RFC 6066 section 3. crypto/tls does not, so the test writes the name into a hello
// itself and checks only the first answer.
func TestInterceptAddressAsSNI(t *testing.T) {
	t.Parallel()
	const handshake, alert = 22, 21
	g := startIntercepting(t, "h1", describe)
	for sni, want := range map[string]byte{"192.0.2.1": handshake, "192.0.2.2": alert} {
		hello := captureHello(t, &tls.Config{ServerName: "192-0-2-x"})
		hello = bytes.Replace(hello, []byte("192-0-2-x"), []byte(sni), 1)
		c := g.dial(t, "192.0.2.1:443")
		c.Write(hello)
		answer := make([]byte, 1)
		if _, err := io.ReadFull(c, answer); err != nil || answer[0] != want {
			t.Errorf("SNI %s: the answer is record %d, error %v, want %d", sni, answer[0], err, want)
		}
		c.Close()
		<-g.ended
	}
}

// TestInterceptHandshakeFailures checks that each way in which a client's handshake fails has its
// reason.
func TestInterceptHandshakeFailures(t *testing.T) {
	t.Parallel()
	insecure := func(c *tls.Config) func(halfConn) {
		return func(conn halfConn) {
			c.ServerName, c.InsecureSkipVerify = "site.example", true
			tls.Client(&duplex{conn}, c).Handshake()
		}
	}
	tests := []struct {
		name  string
		speak func(halfConn)
		want  HandshakeReason
	}{
		{"unknown authority, TLS 1.3", func(c halfConn) { tls.Client(&duplex{c}, &tls.Config{ServerName: "site.example"}).Handshake() }, HandshakeUntrusted},
		{"unknown authority, TLS 1.2", func(c halfConn) {
			tls.Client(&duplex{c}, &tls.Config{ServerName: "site.example", MaxVersion: tls.VersionTLS12}).Handshake()
		}, HandshakeUntrusted},
		{"TLS 1.0", insecure(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}), HandshakeVersion},
		{"TLS 1.1", insecure(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}), HandshakeVersion},
		{"no common protocol", insecure(&tls.Config{NextProtos: []string{"smtp"}}), HandshakeProtocol},
		{"garbage like TLS", func(c halfConn) { io.WriteString(c, "\x16\x03\x01garbage, and quite a lot of it") }, HandshakeNotTLS},
		{"leaves", func(c halfConn) { io.WriteString(c, "\x16"); c.CloseWrite() }, HandshakeClosed},
		{"falls silent", func(c halfConn) { io.WriteString(c, "\x16\x03"); io.Copy(io.Discard, c) }, HandshakeTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startIntercepting(t, "h1", describe)
			if tt.want == HandshakeTimeout {
				g.handshake = 50 * time.Millisecond
			}
			c := g.dial(t, "site.example:443")
			tt.speak(c)
			failed, ok := errors.AsType[*HandshakeError](<-g.ended)
			if !ok || failed.Reason != tt.want {
				t.Errorf("the tunnel ended with %v, want %v", failed, tt.want)
			}
		})
	}
}

func TestInterceptMintFails(t *testing.T) {
	t.Parallel()
	g := startIntercepting(t, "h1", describe)
	g.authority.Renew(t, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
	c := g.dial(t, "site.example:443")
	speakTLS(c, "site.example", nil, func(net.Conn) { t.Error("a request was served without a certificate") })
	if failed, ok := errors.AsType[*HandshakeError](<-g.ended); !ok || failed.Reason != HandshakeMint {
		t.Errorf("the tunnel ended with %v, want a failure to mint", failed)
	}
}

// TestInterceptPlain sends plain HTTP in a tunnel, like undici, got and linkinator.
func TestInterceptPlain(t *testing.T) {
	t.Parallel()
	for _, outer := range []string{"h1", "h2"} {
		g := startIntercepting(t, outer, describe)
		c := g.dial(t, "site.example:80")
		br := bufio.NewReader(c)
		for _, path := range []string{"/a", "http://site.example/b"} {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: site.example\r\n\r\n", path)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := "GET http://site.example/" + path[len(path)-1:] + " HTTP/1.1 true value"
			if got := readAll(t, resp); got != want {
				t.Errorf("%s: got %q, want %q", outer, got, want)
			}
		}
		c.Close()
		if err := <-g.ended; err != nil {
			t.Error(err)
		}
	}
}

// TestInterceptMisdirected checks that the Host inside must be the tunnel's. Otherwise a permitted
// host would open the way to another one.
func TestInterceptMisdirected(t *testing.T) {
	t.Parallel()
	var asked string
	g := startIntercepting(t, "h1", func(w http.ResponseWriter, r *http.Request) {
		describe(w, r)
		asked = r.RequestURI
	})
	c := g.dial(t, "site.example:8080")
	br := bufio.NewReader(c)
	for head, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: site.example:8080\r\n":                                 200,
		"GET / HTTP/1.1\r\nHost: SITE.example.\r\n":                                     200,
		"GET / HTTP/1.1\r\nHost: other.example\r\n":                                     421,
		"GET / HTTP/1.1\r\nHost: site.example:80\r\n":                                   421,
		"GET / HTTP/1.1\r\nHost: \r\n":                                                  421,
		"GET http://other.example/ HTTP/1.1\r\nHost: site.example:8080\r\n":             421,
		"GET / HTTP/1.1\r\nHost: site.example.other.example\r\n":                        421,
		"CONNECT site.example:8080 HTTP/1.1\r\nHost: site.example:8080\r\n":             400,
		"GET https://user@site.example:8080/ HTTP/1.1\r\nHost: site.example:8080\r\n":   200,
		"OPTIONS * HTTP/1.1\r\nHost: site.example:8080\r\n":                             200,
		"GET /?u=http://other.example/ HTTP/1.1\r\nHost: site.example:8080\r\n":         200,
		"GET //other.example/ HTTP/1.1\r\nHost: site.example:8080\r\nUser-Agent: a\r\n": 200,
	} {
		io.WriteString(c, head+"\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body := readAll(t, resp); resp.StatusCode != want || want == 200 && !strings.Contains(body, " http://site.example:8080") {
			t.Errorf("%q: status %d, body %q, want %d", head, resp.StatusCode, body, want)
		}
	}
	c.Close()
	<-g.ended
	// Logs get the target of such a request from its URL.
	for head, want := range map[string]string{
		"GET /a?q HTTP/1.1\r\nHost: other.example\r\n":                             "http://other.example/a?q",
		"GET https://other.example/a HTTP/1.1\r\nHost: site.example:8080\r\n":      "http://other.example/a",
		"OPTIONS * HTTP/1.1\r\nHost: other.example:81\r\n":                         "http://other.example:81",
		"CONNECT site.example:8080 HTTP/1.1\r\nHost: site.example:8080\r\n":        "site.example:8080",
		"GET https://u:p@other.example:1/ HTTP/1.1\r\nHost: site.example:8080\r\n": "http://other.example:1/",
	} {
		c := g.dial(t, "site.example:8080")
		io.WriteString(c, head+"Connection: close\r\n\r\n")
		io.Copy(io.Discard, c)
		<-g.ended // the tunnel ends after the handler
		if asked != want {
			t.Errorf("%q: the handler got %q, want %q", head, asked, want)
		}
	}
}

// TestInterceptForwards uses features that work only if nothing on the way buffers or hides them:
// trailers in both directions, interim responses, a WebSocket, a canceled request.
func TestInterceptForwards(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 4)
	came := make(chan struct{}, 4)
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/trailers":
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("X-Proto", r.Proto)
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", body, r.Trailer.Get("X-In"))
			w.Header().Set("X-Sum", "42")
		case "/hang":
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush()
			came <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		case "/ws":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			got, _ := io.ReadAll(rw)
			fmt.Fprintf(conn, "echo %s", got)
		}
	}), "h2")
	f := &Forwarder{Transport: newTestTransport(t, TransportConfig{
		RootCAs: certPool(origin),
		Dialer:  &Dialer{Guard: loopbackGuard(), Resolver: &names{addrs: map[string][]string{"example.com": {"127.0.0.1"}}}},
	}), Name: "crawlgate", HeaderPrefix: "Crawlgate-"}
	results := make(chan Result, 10)
	handler := func(w http.ResponseWriter, r *http.Request) {
		var res Result
		defer func() { results <- res }()
		if err := ConnectFrom(r.Context()).Resolve(r); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
		if err := forward(f, w, r, r.URL, &res); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	authority := "example.com:" + itoa(portOf(t, origin)) // the name of the test certificate
	for _, outer := range []string{"h1", "h2"} {
		g := startIntercepting(t, outer, handler)
		for inner, config := range map[string]*tls.Config{"h2": {}, "h1": {NextProtos: []string{"http/1.1"}}} {
			c := g.client(t, config)
			what := "outer " + outer + " inner " + inner
			r := request(t, t.Context(), "POST", "https://"+authority+"/trailers", io.MultiReader(strings.NewReader("body")))
			r.Trailer = http.Header{"X-In": {"41"}}
			hints := 0
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
			}))
			resp := send(t, c, r)
			if got := readAll(t, resp); got != "body 41" || resp.Trailer.Get("X-Sum") != "42" || hints != 1 {
				t.Errorf("%s: body %q, trailers %v, %d hints", what, got, resp.Trailer, hints)
			}
			if res := <-results; res.Err != nil || resp.Header.Get("X-Proto") != "HTTP/2.0" {
				t.Errorf("%s: result %+v, header %v", what, res, resp.Header)
			}
			ctx, cancel := context.WithCancel(t.Context())
			send(t, c, request(t, ctx, "GET", "https://"+authority+"/hang", nil))
			<-came
			cancel()
			<-left
			if res := <-results; res.Err == nil || res.Err.Kind != KindClientGone {
				t.Errorf("%s: result %+v, want client_gone", what, res)
			}
		}
		tunnel := g.dial(t, authority)
		err := speakTLS(tunnel, "example.com", nil, func(conn net.Conn) {
			io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
			br := bufio.NewReader(conn)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Errorf("%s: response %v, error %v, want 101", outer, resp, err)
				return
			}
			conn.(*tls.Conn).CloseWrite()
			if got, err := io.ReadAll(br); err != nil || string(got) != "echo hello" {
				t.Errorf("%s: WebSocket: got %q, error %v", outer, got, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if res := <-results; res.Status != 101 {
			t.Errorf("%s: result %+v, want status 101", outer, res)
		}
		tunnel.Close()
	}
}

// TestInterceptShutdown checks that idle tunnels end at once, that a running request is completed,
// and that new tunnels are refused.
func TestInterceptShutdown(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	g := startIntercepting(t, "h1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-finish
		}
		io.WriteString(w, "done")
	})
	idle := g.client(t, &tls.Config{})
	readAll(t, send(t, idle, request(t, t.Context(), "GET", "https://idle.example/", nil)))
	slow := make(chan string, 1)
	go func() {
		resp, err := g.client(t, &tls.Config{NextProtos: []string{"http/1.1"}}).Get("https://slow.example/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		slow <- string(b)
	}()
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- g.Shutdown(context.Background()) }()
	if err := <-g.ended; err != nil {
		t.Errorf("the idle tunnel ended with %v", err)
	}
	c := g.dial(t, "late.example:80")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: late.example\r\n\r\n")
	if err := <-g.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("a late tunnel ended with %v", err)
	}
	close(finish)
	if got := <-slow; got != "done" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestInterceptShutdownIsBounded checks that a request without an end is cut off when the
// shutdown's context ends.
func TestInterceptShutdownIsBounded(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	g := startIntercepting(t, "h1", func(_ http.ResponseWriter, r *http.Request) { close(begun); <-r.Context().Done() })
	c := g.dial(t, "site.example:80")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n")
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown returned %v, want a canceled context", err)
	}
	<-g.ended
}

// TestInterceptEndsWithOuter checks that the end of a CONNECT ends the requests inside.
func TestInterceptEndsWithOuter(t *testing.T) {
	t.Parallel()
	for _, outer := range []string{"h1", "h2"} {
		begun, ended := make(chan struct{}), make(chan struct{})
		g := startIntercepting(t, outer, func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		c := g.dial(t, "site.example:80")
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n")
		<-begun
		c.Close()
		<-ended
		<-g.ended
	}
}

// stuckConn is a client's end that stops accepting bytes at some time. A write then ends only with
// the connection, as on an HTTP/2 stream without a window. A later deadline does not end it.
type stuckConn struct {
	net.Conn
	shut    atomic.Bool
	writing chan struct{} // receives a value when a write is stuck
	closed  chan struct{}
	once    sync.Once
}

func (c *stuckConn) Write(p []byte) (int, error) {
	if !c.shut.Load() {
		return c.Conn.Write(p)
	}
	select {
	case c.writing <- struct{}{}:
	default:
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *stuckConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestInterceptStuckClient checks that a client that accepts no more bytes and leaves during the
// header of a response keeps neither its tunnel open nor the server running.
func TestInterceptStuckClient(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	conn := &stuckConn{Conn: server, writing: make(chan struct{}, 1), closed: make(chan struct{})}
	g := startIntercepting(t, "h1", func(w http.ResponseWriter, r *http.Request) {
		conn.shut.Store(true)
		w.Header().Set("Content-Length", "4000")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ended := make(chan error, 1)
	go func() {
		outer := httptest.NewRequest(http.MethodConnect, "http://site.example:443", http.NoBody)
		ended <- g.ServeTLS(t.Context(), newTunnel(conn), &ConnectContext{Host: "site.example", Port: 443, Outer: outer, Minter: g.minter})
	}()
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: g.authority.Pool()}, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", "https://site.example/", nil))
		if err == nil {
			resp.Body.Close()
			t.Errorf("status %s, want no answer", resp.Status)
		}
	}()
	<-conn.writing
	client.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the tunnel did not end")
		conn.Close()
		<-ended
	}
	<-asked
}

func TestInterceptWithoutMinter(t *testing.T) {
	t.Parallel()
	s := NewInterceptor(&http.Server{Handler: http.HandlerFunc(describe)})
	defer s.Shutdown(t.Context())
	client, server := net.Pipe()
	defer client.Close()
	if err := s.ServeTLS(t.Context(), newTunnel(server), &ConnectContext{Host: "h", Port: 443}); err == nil {
		t.Error("ServeTLS succeeded without an authority")
	}
	if ConnectFrom(t.Context()) != nil {
		t.Error("ConnectFrom returned a ConnectContext without a tunnel")
	}
}

// TestInterceptKeyExchange checks that a client may require any key exchange. A client without a
// preference needs no second hello.
func TestInterceptKeyExchange(t *testing.T) {
	t.Parallel()
	g := startIntercepting(t, "h1", describe)
	for name, tt := range map[string]struct {
		offered []tls.CurveID
		want    tls.CurveID
	}{
		"default":                 {nil, tls.X25519MLKEM768},
		"post-quantum or nothing": {[]tls.CurveID{tls.X25519MLKEM768}, tls.X25519MLKEM768},
		"strong, classical":       {[]tls.CurveID{tls.CurveP384}, tls.CurveP384},
		"post-quantum with P-384": {[]tls.CurveID{tls.SecP384r1MLKEM1024}, tls.SecP384r1MLKEM1024},
		"the oldest in use":       {[]tls.CurveID{tls.CurveP256}, tls.CurveP256},
		"formerly the strongest":  {[]tls.CurveID{tls.CurveP521}, tls.CurveP521},
	} {
		config := &tls.Config{RootCAs: g.authority.Pool(), ServerName: "site.example", CurvePreferences: tt.offered}
		conn := tls.Client(&duplex{g.dial(t, "site.example:443")}, config)
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if s := conn.ConnectionState(); s.CurveID != tt.want || s.HelloRetryRequest && tt.offered == nil {
			t.Errorf("%s: curve %v, want %v; second hello: %t", name, s.CurveID, tt.want, s.HelloRetryRequest)
		}
		conn.Close()
		<-g.ended
	}
}
