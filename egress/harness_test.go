package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/egress/mint"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http logs the errors that these tests provoke
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// startServer serves h over HTTP/1.1, or over TLS with HTTP/2 and HTTP/1.1.
func startServer(tb testing.TB, h http.Handler, proto string) *httptest.Server {
	tb.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnContext = WithConn
	switch proto {
	case "h1":
		s.Start()
	case "h1s":
		s.StartTLS()
	case "h2":
		s.EnableHTTP2 = true
		s.StartTLS()
	default:
		tb.Fatalf("unknown protocol %q", proto)
	}
	tb.Cleanup(s.Close)
	return s
}

// certPool returns a pool with the test servers' certificate.
func certPool(servers ...*httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, s := range servers {
		if c := s.Certificate(); c != nil {
			pool.AddCert(c)
		}
	}
	return pool
}

func newTestTransport(tb testing.TB, c TransportConfig) *Transport {
	tb.Helper()
	if c.Dialer == nil {
		c.Dialer = &Dialer{Guard: loopbackGuard()}
	}
	tr, err := NewTransport(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(tr.CloseIdleConnections)
	return tr
}

// gateway forwards a proxied request to its target, and any other request to the given origin.
type gateway struct {
	*httptest.Server
	forwarder *Forwarder
	results   chan Result   // one for each exchange that has ended
	steps     func(*Result) // if not nil, sets the Steps of each exchange
}

// startGateway starts a gateway whose clients use proto. Requests in origin form go to origin, so
// that clients can use HTTP/2 too.
func startGateway(tb testing.TB, proto string, origin *httptest.Server) *gateway {
	tb.Helper()
	g := &gateway{results: make(chan Result, 100)}
	g.forwarder = &Forwarder{
		Transport:    newTestTransport(tb, TransportConfig{RootCAs: certPool(origin)}),
		Name:         "crawlgate",
		HeaderPrefix: "Crawlgate-",
	}
	g.Server = startServer(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := r.URL
		if !target.IsAbs() {
			base, err := url.Parse(origin.URL)
			if err != nil {
				panic(err)
			}
			u := *r.URL
			target = &u
			target.Scheme, target.Host = base.Scheme, base.Host
		}
		w.Header()["Server"] = []string{"Outer"} // like Caddy
		w.Header()["Alt-Svc"] = []string{`h3=":3128"`}
		w.Header()["X-Preset"] = []string{"kept"}
		g.serve(w, r, target)
	}), proto)
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request, target *url.URL) {
	var res Result
	defer func() { g.results <- res }()
	if g.steps != nil {
		g.steps(&res)
	}
	if err := forward(g.forwarder, w, r, target, &res); err != nil {
		delete(w.Header(), "X-Preset")
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// unnoted is for tests that ignore the steps of an exchange.
type unnoted struct{}

func (unnoted) Connecting()                       {}
func (unnoted) Connected(net.Conn, *http.Request) {}
func (unnoted) Sent()                             {}
func (unnoted) Answered(int, http.Header) bool    { return true }
func (unnoted) Began([]byte, bool) bool           { return true }

// forward forwards a request. The exchange ends with the request's context.
func forward(f *Forwarder, w http.ResponseWriter, r *http.Request, target *url.URL, res *Result) *Error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if res.Hooks == nil {
		res.Hooks = unnoted{}
	}
	return f.Forward(ctx, cancel, w, r, target, res)
}

// client speaks to the gateway as if it were the origin.
func (g *gateway) client(tb testing.TB) *http.Client {
	tb.Helper()
	tr := &http.Transport{
		DisableCompression:  true,
		ForceAttemptHTTP2:   g.TLS != nil,
		TLSClientConfig:     &tls.Config{RootCAs: certPool(g.Server), MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: 64,
	}
	tb.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// raw opens a connection to the gateway for raw HTTP/1.1.
func (g *gateway) raw(tb testing.TB) (net.Conn, *bufio.Reader) {
	tb.Helper()
	return rawConn(tb, g.Server)
}

func rawConn(tb testing.TB, s *httptest.Server) (net.Conn, *bufio.Reader) {
	tb.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// rawOrigin accepts one connection at a time and passes it to serve.
func rawOrigin(tb testing.TB, serve func(net.Conn, *bufio.Reader)) *httptest.Server {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			})
		}
	})
	tb.Cleanup(func() { l.Close(); open.Wait() })
	return &httptest.Server{URL: "http://" + l.Addr().String(), Listener: l, Config: &http.Server{}}
}

// skipHead reads a request's head from br.
func skipHead(br *bufio.Reader) error {
	for {
		line, err := br.ReadString('\n')
		if err != nil || line == "\r\n" {
			return err
		}
	}
}

func mustURL(tb testing.TB, s string) *url.URL {
	tb.Helper()
	u, err := url.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

func portOf(tb testing.TB, s *httptest.Server) uint16 {
	tb.Helper()
	return netip.MustParseAddrPort(s.Listener.Addr().String()).Port()
}

func readAll(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatalf("reading the body: %v", err)
	}
	return string(b)
}

func send(tb testing.TB, c *http.Client, r *http.Request) *http.Response {
	tb.Helper()
	resp, err := c.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { resp.Body.Close() })
	return resp
}

func request(tb testing.TB, ctx context.Context, method, u string, body io.Reader) *http.Request {
	tb.Helper()
	r, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func itoa[T ~int | ~uint16 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func proxyAddr(tb testing.TB, s *httptest.Server) netip.AddrPort {
	tb.Helper()
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// newMinter returns a minter for a test.
func newMinter(tb testing.TB, issuer mint.Issuer) *mint.Minter {
	tb.Helper()
	m, err := mint.New(issuer)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// checkRefusal fails the test unless the guard refused an address for its class; guard.ClassPublic
// stands for no refusal.
func checkRefusal(tb testing.TB, what string, err error, want guard.Class) {
	tb.Helper()
	if want == guard.ClassPublic {
		if err != nil {
			tb.Errorf("%s: error %v, want it allowed", what, err)
		}
		return
	}
	forbidden, ok := errors.AsType[*guard.ForbiddenError](err)
	if !ok || forbidden.Class != want {
		tb.Errorf("%s: error %v, want the class %v", what, err, want)
	}
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
