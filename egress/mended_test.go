package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// oddHeads are answers whose heads net/http reads only in part or rejects, with the fields and
// bodies that they have. An answer without a field is broken.
var oddHeads = []struct{ name, answer, field, value, body string }{
	{"RFC 9112 5.1: a blank before the colon", "HTTP/1.1 200 OK\r\nX-Robots-Tag : noindex\r\nContent-Length: 4\r\n\r\nbody", "X-Robots-Tag", "noindex", "body"},
	{"a tab before the colon", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nSet-Cookie\t: a=1\r\n\r\nbody", "Set-Cookie", "a=1", "body"},
	{"the length", "HTTP/1.1 200 OK\r\nContent-Length : 4\r\nA: b\r\n\r\nbody", "A", "b", "body"},
	{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\nA: b\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "A", "b", "body"},
	{"an interim response", "HTTP/1.1 103 Early Hints\r\nLink : </x>\r\n\r\nHTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 4\r\n\r\nbody", "A", "b", "body"},
	{"RFC 9112 5.2: a field that goes on", "HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\nContent-Length: 4\r\n\r\nbody", "A", "b c", "body"},
	{"RFC 9112 6.3: identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nA: b\r\n\r\nbody", "A", "b", "body"},
	{"identity and a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: identity\r\nA: b\r\n\r\nbody", "A", "b", "body"},
	{"a blank in a name", "HTTP/1.1 200 OK\r\nX B: c\r\nA: b\r\nContent-Length: 4\r\n\r\nbody", "A", "b", "body"},

	{"a blank in a decisive name", "HTTP/1.1 200 OK\r\nX-Robots -Tag: none\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"an odd byte in a name", "HTTP/1.1 200 OK\r\nX(A): b\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"no name", "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"no colon", "HTTP/1.1 200 OK\r\nA b\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"a NUL in a value", "HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"a bare CR in a value", "HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"a first line that goes on", "HTTP/1.1 200 OK\r\n A: b\r\nContent-Length: 4\r\n\r\nbody", "", "", ""},
	{"identity within chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "", "", ""},
	{"a coding that nobody knows", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nbody", "", "", ""},
}

// TestMendedHeads checks that every transport reads all of an answer or fails.
func TestMendedHeads(t *testing.T) {
	t.Parallel()
	var answer string
	origins := make([]*httptest.Server, 0, 2)
	for _, proto := range []string{"h1", "h1s"} {
		origins = append(origins, startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, answer)
			conn.Close()
		}), proto))
	}
	proxy := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		line, _ := br.ReadString('\n')
		if skipHead(br) != nil {
			return
		}
		authority, isTunnel := strings.CutPrefix(line, "CONNECT ")
		if !isTunnel {
			io.WriteString(c, answer)
			return
		}
		up, err := net.Dial("tcp", strings.Fields(authority)[0])
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		relay(t.Context(), replay(c, br, c), up, &watch{idle: defaultIdle})
	})
	socks := socksServer(t, make(chan string, 1000))
	for _, through := range []string{"", proxy.URL, "socks5://u:p@" + socks.Listener.Addr().String()} {
		c := TransportConfig{RootCAs: certPool(origins[1])}
		if through != "" {
			c.Upstreams = []Upstream{{URL: mustURL(t, through)}}
		}
		tr := newTestTransport(t, c)
		for _, tt := range oddHeads {
			answer = tt.answer
			for _, origin := range origins {
				for _, method := range []string{"GET", "POST"} {
					what := fmt.Sprintf("%s: %s %s through %q", tt.name, method, origin.URL, through)
					resp, err := tr.RoundTrip(request(t, t.Context(), method, origin.URL, nil))
					if tt.field == "" {
						if err == nil {
							resp.Body.Close()
							t.Errorf("%s: got %+v, want an error", what, resp)
						}
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					if got := resp.Header.Get(tt.field); got != tt.value {
						t.Errorf("%s: %s is %q, want %q", what, tt.field, got, tt.value)
					}
					if got := readAll(t, resp); got != tt.body {
						t.Errorf("%s: body %q, want %q", what, got, tt.body)
					}
					tr.CloseIdleConnections() // the origin has closed this connection
				}
			}
		}
	}
}

// TestMendedTrailers checks RFC 9112 section 5.1 for trailers, announced or not, and for later
// responses on one connection.
func TestMendedTrailers(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		for skipHead(br) == nil {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nA : b\r\nX-One: field\r\nTrailer: X-One\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-One : 1\r\nX-Two : 2\r\n\r\n")
		}
	})
	g := startGateway(t, "h1", origin)
	for range 3 {
		for _, method := range []string{"GET", "POST"} {
			resp := send(t, g.client(t), request(t, t.Context(), method, g.URL, nil))
			if got := readAll(t, resp); got != "x" || resp.Header.Get("A") != "b" || resp.Header.Get("X-One") != "field" || !slices.Equal(resp.Trailer["X-One"], []string{"1"}) || resp.Trailer.Get("X-Two") != "2" {
				t.Errorf("%s: body %q, header %v, trailers %v", method, got, resp.Header, resp.Trailer)
			}
			<-g.results
		}
	}
}

// TestUpstreamGrants checks RFC 9110 section 9.3.6: any 2xx opens a tunnel.
func TestUpstreamGrants(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), "h2")
	for _, status := range []string{"200 OK", "201 Created", "204 No Content", "299 Fine"} {
		proxy := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
			line, _ := br.ReadString('\n')
			if skipHead(br) != nil {
				return
			}
			up, err := net.Dial("tcp", strings.Fields(line)[1])
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length : 9\r\n\r\n", status)
			relay(t.Context(), replay(c, br, c), up, &watch{idle: defaultIdle})
		})
		tr := newTestTransport(t, TransportConfig{RootCAs: certPool(origin), Upstreams: []Upstream{{URL: mustURL(t, proxy.URL)}}})
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", origin.URL, nil))
		if err != nil {
			t.Errorf("%s: %v", status, err)
			continue
		}
		if got := readAll(t, resp); got != "hello" {
			t.Errorf("%s: got %q, want hello", status, got)
		}
		conn, err := tr.DialTunnel(t.Context(), "127.0.0.1", portOf(t, origin))
		if err != nil {
			t.Errorf("%s: %v", status, err)
			continue
		}
		conn.Close()
		tr.CloseIdleConnections()
	}
}

// TestOptionsAsterisk checks RFC 9112 section 3.2.4: the last proxy sends the asterisk.
func TestOptionsAsterisk(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	server := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		line, _ := br.ReadString('\n')
		if skipHead(br) == nil {
			asked <- strings.TrimSpace(line)
			io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		}
	})
	for through, want := range map[string]string{"": "OPTIONS * HTTP/1.1", server.URL: "OPTIONS " + server.URL + " HTTP/1.1"} {
		var c TransportConfig
		if through != "" {
			c.Upstreams = []Upstream{{URL: mustURL(t, through)}}
		}
		target := &url.URL{Scheme: "http", Host: server.Listener.Addr().String(), Opaque: "*"}
		var res Result
		f := &Forwarder{Transport: newTestTransport(t, c), HeaderPrefix: "Crawlgate-"}
		if err := forward(f, newDiscard(), request(t, t.Context(), "OPTIONS", server.URL, nil), target, &res); err != nil {
			t.Error(err)
			continue
		}
		if got := <-asked; got != want {
			t.Errorf("through %q: the origin got %q, want %q", through, got, want)
		}
	}
}

// TestStepsOfOneExchange checks that the transport reports the steps of an exchange to no other
// exchange.
func TestStepsOfOneExchange(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "h1", startServer(t, http.NotFoundHandler(), "h1"))
	var connected int
	g.steps = func(res *Result) { res.Hooks = countingSteps{n: &connected} }
	for i := range 3 {
		readAll(t, send(t, g.client(t), request(t, t.Context(), "POST", g.URL, strings.NewReader("x"))))
		<-g.results
		if connected != i+1 {
			t.Fatalf("%d exchanges got the steps of %d connections", i+1, connected)
		}
	}
}

// countingSteps counts the connections that are reported to exchanges.
type countingSteps struct {
	unnoted
	n *int
}

func (s countingSteps) Connected(net.Conn, *http.Request) { *s.n++ }
