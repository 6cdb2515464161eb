package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

func BenchmarkRequestHeader(b *testing.B) {
	b.ReportAllocs()
	in := http.Header{
		"User-Agent": {"Bot/1"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Accept-Language": {"en"},
		"Proxy-Connection": {"keep-alive"}, "Cookie": {"a=b"}, "Referer": {"http://h/"}, "Proxy-Authorization": {"Basic x"},
	}
	for b.Loop() {
		RequestHeader(in, "Crawlgate-", Pass{})
	}
}

func BenchmarkServerName(b *testing.B) {
	b.ReportAllocs()
	hello := captureHello(b, &tls.Config{ServerName: "www.example.com", NextProtos: []string{"h2", "http/1.1"}})
	for b.Loop() {
		if _, err := serverNameOf(b.Context(), hello); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkForward measures one request over kept connections. Client, gateway and origin share the
// processor, so compare it with "direct".
func BenchmarkForward(b *testing.B) {
	body := strings.Repeat("x", 64)
	origin := startServer(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }), "h1")
	g := startGateway(b, "h1", origin)
	for name, s := range map[string]*httptest.Server{"direct": origin, "gateway": g.Server} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			c, br := rawConn(b, s)
			ask := []byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			for b.Loop() {
				roundTrip(b, c, br, ask)
				if s != origin {
					<-g.results
				}
			}
		})
	}
}

func roundTrip(b *testing.B, c net.Conn, br *bufio.Reader, ask []byte) {
	b.Helper()
	if _, err := c.Write(ask); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkForwardBody(b *testing.B) {
	const size = 64 << 20
	origin := startServer(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", itoa(size))
		io.CopyN(w, endless{}, size)
	}), "h1")
	g := startGateway(b, "h1", origin)
	c := g.client(b)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := c.Get(g.URL)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
			b.Fatal(n, err)
		}
		resp.Body.Close()
		<-g.results
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkTunnelHandshake measures a CONNECT, a handshake and one request. Client and gateway
// share the processor. "known" has the leaf already, "resumed" a session too.
func BenchmarkTunnelHandshake(b *testing.B) {
	for _, kind := range []string{"new host", "known", "resumed"} {
		b.Run(kind, func(b *testing.B) {
			g := startIntercepting(b, "h1", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") })
			config := &tls.Config{RootCAs: g.authority.Pool()}
			if kind == "resumed" {
				config.ClientSessionCache = tls.NewLRUClientSessionCache(10)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				host := "site.example"
				if kind == "new host" {
					host = fmt.Sprintf("site-%d.example", i)
				}
				i++
				c := config.Clone()
				c.ServerName = host
				tunnelOnce(b, g, host, c)
			}
		})
	}
}

func tunnelOnce(b *testing.B, g *intercepting, host string, c *tls.Config) {
	b.Helper()
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host)
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))); err != nil {
		b.Fatal(err)
	}
	secure := tls.Client(conn, c)
	roundTrip(b, secure, bufio.NewReader(secure), []byte("GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"))
	if err := <-g.ended; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkIntercepted measures one request inside a kept tunnel.
func BenchmarkIntercepted(b *testing.B) {
	g := startIntercepting(b, "h1", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") })
	for name, config := range map[string]*tls.Config{"h1": {NextProtos: []string{"http/1.1"}}, "h2": {}} {
		b.Run(name, func(b *testing.B) {
			c := g.client(b, config)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := c.Get("https://site.example/")
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
