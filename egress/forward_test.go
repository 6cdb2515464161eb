package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/egress/guard"
)

// TestForwardBytes checks that the judged target is the target that is sent (RFC 9112 section
// 3.2.1), in origin form.
func TestForwardBytes(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 1)
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		line, _ := br.ReadString('\n')
		skipHead(br)
		lines <- strings.TrimSpace(line)
		io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	g := startGateway(t, "h1", origin)
	for _, target := range []string{
		"/", "/a/b%2Fc?q", "/%7euser", "//double//slash", "/a?b?c=%zz", "/?", "/a;b=c:@!$&'()*+,",
	} {
		c, br := g.raw(t)
		fmt.Fprintf(c, "GET %s%s HTTP/1.1\r\nHost: ignored\r\n\r\n", origin.URL, target)
		if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 204 ") {
			t.Fatalf("%s: the answer is %q, error %v", target, line, err)
		}
		if got, want := <-lines, "GET "+target+" HTTP/1.1"; got != want {
			t.Errorf("the origin got %q, want %q", got, want)
		}
		c.Close()
	}
}

// TestForwardRequestHeader checks which fields the origin gets.
func TestForwardRequestHeader(t *testing.T) {
	t.Parallel()
	heads := make(chan []string, 1)
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		var head []string
		for {
			line, err := br.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			head = append(head, strings.TrimSpace(line))
		}
		slices.Sort(head[1:])
		heads <- head
		io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	})
	g := startGateway(t, "h1", origin)
	authority := origin.Listener.Addr().String()
	tests := []struct {
		name, sent string
		want       []string
	}{
		{"nothing is added", "", []string{"Host: " + authority}},
		{"Host is the target's", "Host: other.example\r\nAccept: */*\r\n", []string{"Accept: */*", "Host: " + authority}},
		{
			"hop by hop, RFC 9110 section 7.6.1",
			"Connection: keep-alive, X-Hop , x-other\r\nKeep-Alive: 5\r\nX-Hop: 1\r\nX-Other: 2\r\nX-Stays: 3\r\nTE: gzip\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
			[]string{"Host: " + authority, "X-Stays: 3"},
		},
		{
			"proxy credentials",
			"Proxy-Authorization: Basic dTpw\r\nAuthorization: Basic b3JpZ2lu\r\n",
			[]string{"Authorization: Basic b3JpZ2lu", "Host: " + authority},
		},
		{
			"the network inside",
			"X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: http\r\nForwarded: for=10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\nVia: 1.1 inner\r\nTrue-Client-IP: 10.0.0.1\r\n",
			[]string{"Host: " + authority},
		},
		{
			"traces of the inside",
			"Traceparent: 00-0-0-00\r\nTracestate: a=b\r\nBaggage: k=v\r\nb3: 1\r\nX-B3-TraceId: 1\r\nuber-trace-id: 1\r\nX-Datadog-Trace-Id: 1\r\n",
			[]string{"Host: " + authority},
		},
		{"the gateway's own names", "Crawlgate-Agent: x\r\n", []string{"Host: " + authority}},
		{"Connection cannot remove the judged name", "Connection: User-Agent, From\r\nUser-Agent: Bot/1\r\nFrom: a@b\r\n", []string{"From: a@b", "Host: " + authority, "User-Agent: Bot/1"}},
		{"TE: trailers passes", "TE: trailers, deflate\r\nConnection: TE\r\n", []string{"Host: " + authority, "Te: trailers"}},
		{"expectation without a body", "Expect: 100-continue\r\n", []string{"Host: " + authority}},
	}
	for _, tt := range tests {
		c, br := g.raw(t)
		host := "Host: h\r\n"
		if strings.HasPrefix(tt.sent, "Host:") {
			host = ""
		}
		fmt.Fprintf(c, "GET %s/ HTTP/1.1\r\n%s%s\r\n", origin.URL, host, tt.sent)
		if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 204 ") {
			t.Fatalf("%s: the answer is %q, error %v", tt.name, line, err)
		}
		if got := (<-heads)[1:]; !slices.Equal(got, tt.want) {
			t.Errorf("%s: origin got\n%q, want\n%q", tt.name, got, tt.want)
		}
		c.Close()
	}
}

// TestForwardResponseHeader checks which fields reach the client.
func TestForwardResponseHeader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		sent     string
		has, not []string
	}{
		{"the outer server's fields are replaced", "X-A: 1\r\n", []string{"X-A: 1", "X-Preset: kept"}, []string{"Server", "Alt-Svc"}},
		{"origin's own pass", "Server: nginx\r\n", []string{"Server: nginx"}, nil},
		{"another way to the origin", "Alt-Svc: h3=\":443\", h2=\"alt.example:443\"\r\n", nil, []string{"Alt-Svc"}},
		{
			"what else is for browsers", "Strict-Transport-Security: max-age=9\r\nClear-Site-Data: \"cache\"\r\n",
			[]string{"Strict-Transport-Security: max-age=9", `Clear-Site-Data: "cache"`},
			nil,
		},
		{"origin's value replaces a preset one", "X-Preset: origin\r\n", []string{"X-Preset: origin"}, nil},
		{"hop by hop", "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\n", nil, []string{"X-Hop", "Keep-Alive", "Proxy-Authenticate"}},
		{"no type is guessed", "", nil, []string{"Content-Type"}},
		{"the gateway's own fields are removed", "Proxy-Status: crawlgate; error=dns_error\r\nCrawlgate-Rule: 1\r\nCache-Status: \"crawlgate\"; hit\r\n", nil, []string{"Proxy-Status", "Crawlgate-Rule", "Cache-Status"}},
		{"other proxies' fields pass", "Proxy-Status: cdn; error=dns_error, crawlgate; error=dns_error\r\nCache-Status: cdn; hit\r\n", []string{"Proxy-Status: cdn;error=dns_error", "Cache-Status: cdn; hit"}, nil},
		{"repeated fields pass", "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n", []string{"Set-Cookie: a=1|b=2"}, nil},
	}
	for _, proto := range []string{"h1", "h2"} {
		var answer string
		origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
			skipHead(br)
			io.WriteString(c, answer)
		})
		g := startGateway(t, proto, origin)
		client := g.client(t)
		for _, tt := range tests {
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\n" + tt.sent + "\r\n<html>x"
			if !strings.Contains(tt.sent, "Connection:") {
				answer = strings.Replace(answer, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
			}
			resp := send(t, client, request(t, t.Context(), "GET", g.URL, nil))
			if body := readAll(t, resp); body != "<html>x" {
				t.Errorf("%s, %s: body %q", proto, tt.name, body)
			}
			for _, line := range tt.has {
				name, value, _ := strings.Cut(line, ": ")
				if got := strings.Join(resp.Header[name], "|"); got != value {
					t.Errorf("%s, %s: %s is %q, want %q", proto, tt.name, name, got, value)
				}
			}
			for _, name := range tt.not {
				if got, ok := resp.Header[name]; ok {
					t.Errorf("%s, %s: %s: %q passed", proto, tt.name, name, got)
				}
			}
		}
	}
}

// pair is the client's protocol and the origin's.
type pair struct{ client, origin string }

// pairs are all four combinations of protocols.
var pairs = []pair{{"h1", "h1"}, {"h1", "h2"}, {"h2", "h1"}, {"h2", "h2"}}

func (p pair) String() string { return "client " + p.client + " origin " + p.origin }

func (p pair) start(tb testing.TB, h http.Handler) (*gateway, *http.Client) {
	tb.Helper()
	g := startGateway(tb, p.client, startServer(tb, h, p.origin))
	return g, g.client(tb)
}

func (g *gateway) result(t *testing.T) Result {
	t.Helper()
	select {
	case r := <-g.results:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("the exchange did not end")
		return Result{}
	}
}

func TestForwardBodies(t *testing.T) {
	t.Parallel()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("X-Length", itoa(r.ContentLength))
		w.Header().Set("X-Method", r.Method)
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", itoa(r.ContentLength))
		}
		io.Copy(w, r.Body)
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, echo)
			big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
			tests := []struct {
				method, query string
				body          io.Reader
				length        string
				want          string
			}{
				{"GET", "", nil, "0", ""},
				{"POST", "", nil, "0", ""},
				{"POST", "", strings.NewReader("x"), "1", "x"},
				{"PUT", "?length", strings.NewReader(big), itoa(len(big)), big},
				{"PATCH", "", io.MultiReader(strings.NewReader(big)), "-1", big},
				{"DELETE", "", strings.NewReader("x"), "1", "x"},
				{"PROPFIND", "", strings.NewReader("x"), "1", "x"},
			}
			for i, tt := range tests {
				resp := send(t, c, request(t, t.Context(), tt.method, g.URL+"/"+tt.query, tt.body))
				if got := readAll(t, resp); got != tt.want {
					t.Errorf("%d: %d bytes came back, want %d", i, len(got), len(tt.want))
				}
				if got := resp.Header.Get("X-Length"); got != tt.length {
					t.Errorf("%d: origin saw length %s, want %s", i, got, tt.length)
				}
				if got := resp.Header.Get("X-Method"); got != tt.method {
					t.Errorf("%d: origin saw %s, want %s", i, got, tt.method)
				}
				res := g.result(t)
				if res.Err != nil || res.Status != 200 {
					t.Errorf("request %d: result %+v, want status 200", i, res)
				}
				// The first GET and the first other request open a connection each.
				if !res.Dialed.Addr.IsValid() || (res.Dialed.Connect == 0) != (i > 1) {
					t.Errorf("request %d: connection %+v", i, res.Dialed)
				}
			}
		})
	}
}

func TestForwardHead(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1234") })
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			resp := send(t, c, request(t, t.Context(), "HEAD", g.URL, nil))
			if body := readAll(t, resp); body != "" || resp.ContentLength != 1234 {
				t.Errorf("length %d, body %q, want 1234 and no body", resp.ContentLength, body)
			}
		})
	}
}

// TestForwardNotModified checks that a 304 may have the length of the page (RFC 9110 section 8.6).
func TestForwardNotModified(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1234")
		w.Header().Set("ETag", `"page"`)
		w.WriteHeader(http.StatusNotModified)
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			// A net/http client reports an HTTP/2 304 with a length as broken off when it reads the
			// body.
			resp := send(t, c, request(t, t.Context(), "GET", g.URL, nil))
			if resp.StatusCode != http.StatusNotModified || resp.Header.Get("ETag") != `"page"` {
				t.Errorf("status %d, header %v, want 304", resp.StatusCode, resp.Header)
			}
			if res := g.result(t); res.Err != nil {
				t.Errorf("result %+v", res)
			}
		})
	}
}

func TestForwardStatuses(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscan(r.URL.Path[1:], &code)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			for _, code := range []int{200, 204, 206, 299, 301, 304, 401, 403, 404, 418, 429, 451, 500, 503, 599, 999} {
				resp := send(t, c, request(t, t.Context(), "GET", g.URL+"/"+itoa(code), nil))
				if readAll(t, resp); resp.StatusCode != code {
					t.Errorf("status %d became %d", code, resp.StatusCode)
				}
				if res := g.result(t); res.Status != code || res.Err != nil {
					t.Errorf("result %+v, want status %d", res, code)
				}
			}
		})
	}
}

func TestForwardRequestTrailers(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		keys := slices.Sorted(maps.Keys(r.Trailer))
		fmt.Fprintf(w, "%s %s %v", body, r.Trailer.Get("X-Sum"), keys)
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			for _, length := range []int64{-1, 4} {
				r := request(t, t.Context(), "POST", g.URL, nil)
				r.Trailer = http.Header{"X-Sum": nil, "X-Forwarded-For": nil, "Signature-Input": nil, "Signature_input": nil}
				r.ContentLength = length
				if g.TLS == nil {
					r.ContentLength = -1 // in HTTP/1.1, trailers only follow chunks
				}
				r.Body = io.NopCloser(io.MultiReader(strings.NewReader("body"), readerFunc(func([]byte) (int, error) {
					r.Trailer["X-Sum"] = []string{"42"}
					for _, name := range []string{"X-Forwarded-For", "Signature-Input", "Signature_input"} {
						r.Trailer[name] = []string{"10.0.0.1"}
					}
					return 0, io.EOF
				})))
				if got, want := readAll(t, send(t, c, r)), "body 42 [X-Sum]"; got != want {
					t.Errorf("length %d: origin saw %q, want %q", length, got, want)
				}
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestForwardResponseTrailers(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Has("announced") {
			w.Header().Set("Trailer", "X-Sum, Crawlgate-Sum")
		}
		body := q.Get("body")
		if q.Has("length") && r.ProtoMajor == 2 { // Go origins and others add it by themselves over HTTP/2
			w.Header().Set("Content-Length", itoa(len(body)))
		}
		io.WriteString(w, body)
		if q.Has("announced") {
			w.Header().Set("X-Sum", "42")
			w.Header().Set("Crawlgate-Sum", "forged")
		}
		if q.Has("late") {
			http.NewResponseController(w).Flush()
			w.Header().Set(http.TrailerPrefix+"X-Late", "43")
			w.Header().Set(http.TrailerPrefix+"Crawlgate-Late", "forged")
		}
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			long := strings.Repeat("x", 100<<10)
			for _, body := range []string{"", "short", long} {
				for _, q := range []string{"announced", "announced&length", "late", "announced&late"} {
					resp := send(t, c, request(t, t.Context(), "GET", g.URL+"/?"+q+"&body="+body, nil))
					if got := readAll(t, resp); got != body {
						t.Fatalf("%s: body of %d bytes came as %d", q, len(body), len(got))
					}
					want := http.Header{}
					if strings.Contains(q, "announced") {
						want["X-Sum"] = []string{"42"}
					}
					if strings.Contains(q, "late") {
						want["X-Late"] = []string{"43"}
					}
					if !maps.EqualFunc(resp.Trailer, want, slices.Equal) {
						t.Errorf("%s, %d bytes: trailers %v, want %v", q, len(body), resp.Trailer, want)
					}
				}
			}
		})
	}
}

func TestForwardInterim(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.Header().Set("Crawlgate-Hint", "forged")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(http.StatusOK)
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			var got []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					got = append(got, fmt.Sprint(code, h.Get("Link"), len(h)))
					return nil
				},
			})
			resp := send(t, c, request(t, ctx, "GET", g.URL, nil))
			if want := []string{"103</a.css>; rel=preload1", "1020"}; !slices.Equal(got, want) {
				t.Errorf("interim responses %q, want %q", got, want)
			}
			if resp.Header.Get("X-Preset") != "kept" || resp.Header.Get("Link") != "" {
				t.Errorf("final header %v", resp.Header)
			}
		})
	}
}

func TestForwardInterimEndless(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		skipHead(br)
		for {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
				return
			}
		}
	})
	g := startGateway(t, "h1", origin)
	resp := send(t, g.client(t), request(t, t.Context(), "GET", g.URL, nil))
	if res := g.result(t); resp.StatusCode != http.StatusBadGateway || res.Err.Kind != KindProtocol {
		t.Errorf("status %d, error %v, want 502 for a protocol error", resp.StatusCode, res.Err)
	}
}

// TestForwardInterimHTTP10 checks that clients of HTTP/1.0 get no interim responses (RFC 9110
// section 15.2).
func TestForwardInterimHTTP10(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
		http.NewResponseController(w).Flush()
		w.Header().Set("X-Sum", "1")
	}), "h1")
	g := startGateway(t, "h1", origin)
	c, _ := g.raw(t)
	fmt.Fprintf(c, "GET %s/ HTTP/1.0\r\n\r\n", origin.URL)
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(all), "\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.0 200 ") || body != "body" || strings.Contains(head, "chunked") {
		t.Errorf("client of HTTP/1.0 got %q", all)
	}
}

// TestForwardExpectAccepted checks that the client sends the body after the origin's 100 (RFC 9110
// section 10.1.1).
func TestForwardExpectAccepted(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Expect", r.Header.Get("Expect"))
		w.Header().Set("X-Proto", r.Proto)
		io.Copy(w, r.Body)
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			c.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour // only a 100 makes the client send the body
			hundreds := 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { hundreds++ }})
			r := request(t, ctx, "POST", g.URL, strings.NewReader("body"))
			r.Header.Set("Expect", "100-continue")
			resp := send(t, c, r)
			if got := readAll(t, resp); got != "body" || hundreds != 1 {
				t.Errorf("got %q after %d 100s", got, hundreds)
			}
			// Go's HTTP/2 server removes the field, and sends the 100 when a handler reads the
			// body.
			if g.result(t); g.TLS == nil && resp.Header.Get("X-Proto") == "HTTP/1.1" && resp.Header.Get("X-Expect") != "100-continue" {
				t.Error("the expectation did not reach the origin")
			}
		})
	}
}

// wrapBody hides the server's own body, like Caddy's read_body_idle. net/http then no longer knows
// that the client waits for 100 Continue.
type wrapBody struct{ io.ReadCloser }

// TestForwardExpectRefused checks that a refusal comes at once, that the client is not asked for
// the body, and that the connection ends.
func TestForwardExpectRefused(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		for _, wrapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("origin %s, wrapped %v", proto, wrapped), func(t *testing.T) {
				t.Parallel()
				origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusExpectationFailed)
					io.WriteString(w, "no")
				}), proto)
				g := startGateway(t, "h1", origin)
				if wrapped {
					inner := g.Config.Handler
					g.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						r2 := r.WithContext(r.Context())
						r2.Body = wrapBody{r.Body}
						inner.ServeHTTP(w, r2)
					})
				}
				c, br := g.raw(t)
				io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
				resp, err := http.ReadResponse(br, nil) // blocks forever if the gateway waits for the body
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != http.StatusExpectationFailed || !resp.Close || readAll(t, resp) != "no" {
					t.Errorf("status %d, close %v, want 417 and the end", resp.StatusCode, resp.Close)
				}
				if n, err := br.Discard(1); err != io.EOF {
					t.Errorf("%d more bytes, error %v, want EOF", n, err)
				}
				if res := g.result(t); res.Err != nil {
					t.Errorf("result %+v", res)
				}
			})
		}
	}
}

// TestForwardExpectUnanswered checks that an origin that ignores expectations gets the body after a
// while.
func TestForwardExpectUnanswered(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		skipHead(br)
		body := make([]byte, 4)
		io.ReadFull(br, body)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n%s", body)
	})
	g := startGateway(t, "h1", origin)
	c, br := g.raw(t)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if line, err := br.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q, error %v, want a 100", line, err)
	}
	br.ReadString('\n')
	io.WriteString(c, "body")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); got != "body" {
		t.Errorf("got %q", got)
	}
}

// TestForwardExpectFailing checks that an error of the gateway itself does not wait for the body
// either.
func TestForwardExpectFailing(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "h1", startServer(t, http.NotFoundHandler(), "h1"))
	c, br := g.raw(t)
	fmt.Fprintf(c, "POST http://127.0.0.1:%d/ HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n", freePort(t))
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if readAll(t, resp); resp.StatusCode != http.StatusBadGateway || !resp.Close {
		t.Errorf("status %d, close %v, want 502 and the end", resp.StatusCode, resp.Close)
	}
}

// TestForwardStreams checks that bytes are forwarded without waiting for more, in both directions
// and with both kinds of length.
func TestForwardStreams(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		switch r.URL.Path {
		case "/known":
			w.Header().Set("Content-Length", "6")
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(http.StatusOK)
		rc.Flush()
		buf := make([]byte, 2)
		for {
			n, err := io.ReadFull(r.Body, buf) // echoes piece by piece
			w.Write(buf[:n])
			rc.Flush()
			if err != nil {
				return
			}
		}
	})
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			for _, path := range []string{"/unknown", "/known", "/events"} {
				pr, pw := io.Pipe()
				resp := send(t, c, request(t, t.Context(), "POST", g.URL+path, pr))
				for _, part := range []string{"ab", "cd", "ef"} {
					io.WriteString(pw, part)
					buf := make([]byte, 2)
					if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != part {
						t.Fatalf("%s: got %q, %v, want %q", path, buf, err, part)
					}
				}
				pw.Close()
				if rest := readAll(t, resp); rest != "" {
					t.Errorf("%s: %q follows the end", path, rest)
				}
			}
		})
	}
}

// TestForwardCancel checks that the origin notices when the client leaves, before and during the
// response.
func TestForwardCancel(t *testing.T) {
	t.Parallel()
	came, left := make(chan struct{}, 8), make(chan struct{}, 8)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.WriteHeader(http.StatusOK)
			io.WriteString(w, "x")
			http.NewResponseController(w).Flush()
		}
		came <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	for _, p := range pairs {
		g, c := p.start(t, h)
		for _, path := range []string{"/silent", "/begun"} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := c.Do(request(t, ctx, "GET", g.URL+path, nil))
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-came
			cancel()
			<-left
			<-done
			if res := g.result(t); res.Err == nil || res.Err.Kind != KindClientGone {
				t.Errorf("%v %s: result %+v, want client_gone", p, path, res)
			}
		}
	}
}

// TestForwardLeftWithAll checks that a client that has all bytes of the length may leave, although
// the origin has not ended the stream (RFC 9113 section 8.1).
func TestForwardLeftWithAll(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "4")
		io.WriteString(w, "page")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for _, p := range pairs {
		if p.origin != "h2" {
			continue
		}
		g, c := p.start(t, h)
		ctx, cancel := context.WithCancel(t.Context())
		resp := send(t, c, request(t, ctx, "POST", g.URL, strings.NewReader("x")))
		page := make([]byte, 4)
		if _, err := io.ReadFull(resp.Body, page); err != nil {
			t.Fatal(err)
		}
		cancel()
		resp.Body.Close()
		c.CloseIdleConnections()
		if res := g.result(t); res.Err != nil {
			t.Errorf("%v: result %+v", p, res)
		}
	}
}

// TestForwardTruncation checks that a response that breaks off never looks complete.
func TestForwardTruncation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, answer string
		reset        bool
		want         Kind
	}{
		{"short of the length", "Content-Length: 10\r\n\r\nhalf", false, KindIncomplete},
		{"short of the length, reset", "Content-Length: 10\r\n\r\nhalf", true, KindIncomplete},
		{"inside a chunk", "Transfer-Encoding: chunked\r\n\r\n8\r\nhalf", false, KindIncomplete},
		{"between chunks", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", false, KindIncomplete},
		{"bad chunk size", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n", false, KindCoding},
		{"bad trailer", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nX", false, KindIncomplete},
	}
	for _, proto := range []string{"h1", "h2"} {
		for _, tt := range tests {
			t.Run(proto+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				seen := make(chan struct{})
				origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
					skipHead(br)
					io.WriteString(c, "HTTP/1.1 200 OK\r\n"+tt.answer)
					if tt.reset {
						<-seen
						c.(*net.TCPConn).SetLinger(0)
					}
				})
				g := startGateway(t, proto, origin)
				resp := send(t, g.client(t), request(t, t.Context(), "GET", g.URL, nil))
				half := make([]byte, 4)
				if _, err := io.ReadFull(resp.Body, half); err != nil || string(half) != "half" {
					t.Errorf("got %q, error %v, want the bytes before the break", half, err)
				}
				close(seen)
				if rest, err := io.ReadAll(resp.Body); err == nil {
					t.Errorf("the broken body ended without an error, after %q", rest)
				}
				res := g.result(t)
				if res.Err == nil || res.Err.Kind != tt.want || res.Status != 200 || !res.Started {
					t.Errorf("result %+v, want %v", res, tt.want)
				}
			})
		}
	}
}

// TestForwardTruncationHTTP10 checks that a broken body without a length ends with a reset, which
// is the only sign for an HTTP/1.0 client.
func TestForwardTruncationHTTP10(t *testing.T) {
	t.Parallel()
	cut := make(chan struct{})
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		skipHead(br)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
		<-cut
	})
	g := startGateway(t, "h1", origin)
	c, br := g.raw(t)
	fmt.Fprintf(c, "GET %s/ HTTP/1.0\r\n\r\n", origin.URL)
	skipHead(br)
	half := make([]byte, 4)
	io.ReadFull(br, half)
	close(cut)
	if rest, err := io.ReadAll(br); err == nil {
		t.Errorf("the broken body ended without an error: %q, %q", half, rest)
	}
}

// TestForwardFailures checks that each failure before the response has its kind, and that the
// caller can still answer.
func TestForwardFailures(t *testing.T) {
	t.Parallel()
	say := func(text string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, br *bufio.Reader) {
			skipHead(br)
			io.WriteString(c, text)
		}
	}
	tests := []struct {
		name  string
		serve func(net.Conn, *bufio.Reader)
		want  Kind
	}{
		{"closes", say(""), KindReset},
		{"resets", func(c net.Conn, br *bufio.Reader) { skipHead(br); c.(*net.TCPConn).SetLinger(0) }, KindReset},
		{"closes inside the header", say("HTTP/1.1 200 OK\r\nX-A: 1"), KindReset},
		{"speaks something else", say("SSH-2.0-OpenSSH\r\n\r\n"), KindProtocol},
		{"bad status", say("HTTP/1.1 abc OK\r\n\r\n"), KindProtocol},
		{"status 000", say("HTTP/1.1 000 OK\r\n\r\n"), KindProtocol},
		{"bad field", say("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), KindProtocol},
		{"two lengths", say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"), KindProtocol},
		{"unknown coding", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: rot13\r\n\r\nx"), KindCoding},
		{"huge header", say("HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", maxResponseHeader) + "\r\n\r\n"), KindHeaderSize},
		{"unasked switch", say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), KindProtocol},
		{"demands proxy credentials", say("HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"), KindProtocol},
		{"silent", func(c net.Conn, br *bufio.Reader) { io.Copy(io.Discard, br) }, KindTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			origin := rawOrigin(t, tt.serve)
			g := startGateway(t, "h1", origin)
			if tt.want == KindTimeout {
				g.forwarder.Transport = newTestTransport(t, TransportConfig{ResponseHeaderTimeout: 50 * time.Millisecond})
			}
			resp := send(t, g.client(t), request(t, t.Context(), "GET", g.URL, nil))
			readAll(t, resp)
			res := g.result(t)
			if res.Err == nil || res.Err.Kind != tt.want || res.Started || resp.StatusCode != http.StatusBadGateway {
				t.Errorf("status %d, result %+v (%v), want %v", resp.StatusCode, res, res.Err, tt.want)
			}
			if res.Err.Addr.Port() != portOf(t, origin) {
				t.Errorf("address %v, want the origin's", res.Err.Addr)
			}
		})
	}
}

// TestForwardOriginTLS checks that certificates are verified, and that each failure has its kind.
func TestForwardOriginTLS(t *testing.T) {
	t.Parallel()
	good := startServer(t, http.NotFoundHandler(), "h2")
	plain := startServer(t, http.NotFoundHandler(), "h1")
	closing := rawOrigin(t, func(net.Conn, *bufio.Reader) {})
	old := rawOrigin(t, func(c net.Conn, _ *bufio.Reader) { // answers TLS 1.0's alert protocol_version
		io.ReadFull(c, make([]byte, 5))
		c.Write([]byte{21, 3, 1, 0, 2, 2, 70})
		io.Copy(io.Discard, c)
	})
	tests := []struct {
		name, target string
		want         Kind
	}{
		{"wrong name", "https://localhost:" + itoa(portOf(t, good)), KindTLSCertificate},
		{"plain", "https://" + plain.Listener.Addr().String(), KindTLS},
		{"closes", "https://" + closing.Listener.Addr().String(), KindReset},
		{"alert", "https://" + old.Listener.Addr().String(), KindTLSAlert},
	}
	g := startGateway(t, "h1", good)
	g.forwarder.Transport = newTestTransport(t, TransportConfig{
		RootCAs: certPool(good),
		Dialer:  &Dialer{Guard: loopbackGuard(), Resolver: &names{addrs: map[string][]string{"localhost": {"127.0.0.1"}}}},
	})
	for _, tt := range tests {
		var res Result
		err := forward(g.forwarder, newDiscard(), request(t, t.Context(), "GET", tt.target, nil), mustURL(t, tt.target), &res)
		if err == nil || err.Kind != tt.want {
			t.Errorf("%s: error %v, want the kind %v", tt.name, err, tt.want)
		}
	}
	untrusting := &Forwarder{Transport: newTestTransport(t, TransportConfig{})}
	var res Result
	err := forward(untrusting, newDiscard(), request(t, t.Context(), "GET", good.URL, nil), mustURL(t, good.URL), &res)
	if err == nil || err.Kind != KindTLSCertificate {
		t.Errorf("unknown authority: error %v, want a certificate error", err)
	}
}

// discard is a ResponseWriter that records whether it was written to.
type discard struct {
	h       http.Header
	written bool
}

func newDiscard() *discard { return &discard{h: make(http.Header)} }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { d.written = true; return len(p), nil }
func (d *discard) WriteHeader(int)             { d.written = true }

// TestForwardWritesNothingOnFailure checks that the answer to a failure is left to the caller.
func TestForwardWritesNothingOnFailure(t *testing.T) {
	t.Parallel()
	f := &Forwarder{Transport: newTestTransport(t, TransportConfig{})}
	f.Transport.via = "me"
	target := fmt.Sprintf("http://127.0.0.1:%d/", freePort(t))
	looped := request(t, t.Context(), "GET", target, nil)
	looped.Header.Set("Via", "1.0 fred, 1.1 ME (Crawlgate)")
	forbidden := request(t, t.Context(), "GET", "http://10.0.0.1/", nil)
	for want, r := range map[Kind]*http.Request{
		KindRefused: request(t, t.Context(), "GET", target, nil), KindLoop: looped, KindForbidden: forbidden,
	} {
		w := newDiscard()
		var res Result
		err := forward(f, w, r, r.URL, &res)
		if err == nil || err.Kind != want || res.Err != err || w.written || res.Started {
			t.Errorf("want %v: error %v, wrote %v, result %+v", want, err, w.written, res)
		}
	}
}

// TestForwardStalled checks that an origin that falls silent in the middle is given up, but a slow
// client is not.
func TestForwardStalled(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		skipHead(br)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		io.Copy(io.Discard, br)
	})
	g := startGateway(t, "h1", origin)
	g.forwarder.idle = 30 * time.Millisecond
	resp := send(t, g.client(t), request(t, t.Context(), "GET", g.URL, nil))
	if got, err := io.ReadAll(resp.Body); err == nil || string(got) != "half" {
		t.Errorf("got %q, error %v, want half an answer and an error", got, err)
	}
	if res := g.result(t); res.Err == nil || res.Err.Kind != KindStalled {
		t.Errorf("result %+v, want stalled", res)
	}
}

// TestForwardClientBodyBreaks checks that a broken request body is reported as the client's
// failure, not the origin's.
func TestForwardClientBodyBreaks(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	for _, proto := range []string{"h1", "h2"} {
		g := startGateway(t, "h1", startServer(t, h, proto))
		for sent, want := range map[string]Kind{
			"Content-Length: 10\r\n\r\nhalf":                KindClientGone,
			"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf":   KindClientGone,
			"Transfer-Encoding: chunked\r\n\r\nzz\r\nhalf":  KindClientBody,
			"Transfer-Encoding: chunked\r\n\r\n4\r\nhalfxx": KindClientBody,
		} {
			c, _ := g.raw(t)
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\n"+sent)
			c.(*net.TCPConn).CloseWrite()
			if res := g.result(t); res.Err == nil || res.Err.Kind != want {
				t.Errorf("%s, %q: result %+v, want %v", proto, sent, res, want)
			}
			c.Close()
		}
	}
}

// TestForwardClientBodyTooLarge checks that the caller's limit on the body is reported as a limit.
func TestForwardClientBodyTooLarge(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), "h1")
	g := startGateway(t, "h1", origin)
	inner := g.Config.Handler
	g.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 100)
		inner.ServeHTTP(w, r)
	})
	resp := send(t, g.client(t), request(t, t.Context(), "POST", g.URL, bytes.NewReader(make([]byte, 200))))
	if body := readAll(t, resp); !strings.HasPrefix(body, string(KindClientTooLarge)) {
		t.Errorf("the answer is %q", body)
	}
}

// TestForwardUnreadBody checks that the connection ends after a body that was not read. net/http
// panics if it reads the rest of the body itself after a handler has forbidden it, and then reads
// the next request.
func TestForwardUnreadBody(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), "h1")
	g := startGateway(t, "h1", origin)
	inner := g.Config.Handler
	g.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As in Caddy, the reader does not get the server's own writer, so it cannot close the
		// connection.
		r.Body = http.MaxBytesReader(struct{ http.ResponseWriter }{w}, r.Body, 100)
		inner.ServeHTTP(w, r)
	})
	var said bytes.Buffer
	g.Config.ErrorLog = log.New(&said, "", 0)
	c, br := g.raw(t)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n200\r\n"+strings.Repeat("x", 0x200)+"\r\n0\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body := readAll(t, resp); !strings.HasPrefix(body, string(KindClientTooLarge)) || !resp.Close {
		t.Errorf("the answer is %q, close %v", body, resp.Close)
	}
	if _, err := br.Peek(1); err != io.EOF {
		t.Errorf("after the answer: error %v, want EOF", err)
	}
	g.Close() // waits for its connections
	if said.Len() > 0 {
		t.Errorf("the server logged %s", said.String())
	}
}

// TestForwardEarlyResponse checks that a client gets an origin's answer before the origin has the
// whole body.
func TestForwardEarlyResponse(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		skipHead(br)
		io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
		io.Copy(io.Discard, br)
	})
	g := startGateway(t, "h1", origin)
	c, br := g.raw(t)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nbegin")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); resp.StatusCode != http.StatusRequestEntityTooLarge || got != "no" {
		t.Errorf("status %d, body %q", resp.StatusCode, got)
	}
}

func TestForwardWebSocket(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} { // an upgrade uses HTTP/1.1 even if the origin has HTTP/2
		origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isWebSocket(r.Header) || r.Header.Get("Sec-WebSocket-Key") != "k" || r.Header.Get("X-Forwarded-For") != "" {
				http.Error(w, "not an upgrade", http.StatusBadRequest)
				return
			}
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: a\r\nCrawlgate-X: forged\r\n\r\nhello ")
			got, _ := io.ReadAll(rw) // until the client's half ends
			io.WriteString(conn, "echo "+string(got))
		}), proto)
		g := startGateway(t, "h1", origin)
		var told atomic.Int64
		g.steps = func(res *Result) { res.Tell = func(n int) { told.Add(int64(n)) } }
		c, br := g.raw(t)
		io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\nX-Forwarded-For: 10.0.0.1\r\n\r\nearly ")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Accept": {"a"}}
		if resp.StatusCode != 101 || !maps.EqualFunc(resp.Header, want, slices.Equal) {
			t.Errorf("%s: status %d, header %v", proto, resp.StatusCode, resp.Header)
		}
		hello := make([]byte, 6)
		io.ReadFull(br, hello)
		io.WriteString(c, "late")
		c.(*net.TCPConn).CloseWrite()
		rest, err := io.ReadAll(br)
		if got := string(hello) + string(rest); err != nil || got != "hello echo early late" {
			t.Errorf("%s: got %q, error %v", proto, got, err)
		}
		if res := g.result(t); res.Status != 101 || res.Err != nil || res.Uploaded != told.Load() {
			t.Errorf("%s: result %+v, told of %d bytes", proto, res, told.Load())
		}
	}
}

// TestForwardTells checks that the caller learns of the bytes of bodies while the exchange runs.
func TestForwardTells(t *testing.T) {
	t.Parallel()
	for _, p := range pairs {
		var told atomic.Int64
		all := make(chan struct{})
		g, c := p.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, "down")
			http.NewResponseController(w).Flush()
			select {
			case <-all:
			case <-r.Context().Done():
			}
		}))
		g.steps = func(res *Result) {
			res.Tell = func(n int) {
				if told.Add(int64(n)) == int64(len("up")+len("down")) {
					close(all)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		readAll(t, send(t, c, request(t, ctx, "POST", g.URL, strings.NewReader("up"))))
		if res := g.result(t); res.Err != nil || told.Load() != res.Bytes+res.Uploaded {
			t.Errorf("%v: told of %d bytes: %+v", p, told.Load(), res)
		}
	}
}

// TestForwardUpgradeRefused checks that an origin that does not switch answers as usual, on a
// connection that stays open.
func TestForwardUpgradeRefused(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "h1", startServer(t, http.NotFoundHandler(), "h1"))
	c, br := g.raw(t)
	for range 2 {
		io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != http.StatusNotFound {
			t.Fatalf("the answer is %v, error %v, want 404", resp, err)
		}
		readAll(t, resp)
	}
}

// TestForwardOtherUpgrades checks that h2c is not forwarded, because requests without a decision
// would follow.
func TestForwardOtherUpgrades(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header["Upgrade"], r.Header["Connection"], r.Header["Http2-Settings"])
	}), "h1")
	g := startGateway(t, "h1", origin)
	c, br := g.raw(t)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, resp); got != "[] [] []" {
		t.Errorf("the origin got %q", got)
	}
	odd := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		skipHead(br)
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	})
	g2 := startGateway(t, "h1", odd)
	c, br = g2.raw(t)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Fatalf("the answer is %v, error %v, want 502", resp, err)
	}
	if res := g2.result(t); res.Err.Kind != KindUpgrade {
		t.Errorf("error %v, want upgrade", res.Err)
	}
}

// TestForwardKeepsConnections checks that the client's and the origin's connections are reused.
func TestForwardKeepsConnections(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			g, c := p.start(t, h)
			for i := range 5 {
				reused := false
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
				readAll(t, send(t, c, request(t, ctx, "POST", g.URL, strings.NewReader("x"))))
				if again := g.result(t).Dialed.Connect == 0; again != (i > 0) || reused != (i > 0) {
					t.Errorf("request %d: client reused %v, gateway reused %v", i, reused, again)
				}
			}
		})
	}
}

// TestErrorUnwraps checks that an error wraps the transport's error.
func TestErrorUnwraps(t *testing.T) {
	t.Parallel()
	cause := &guard.ForbiddenError{Class: "private"}
	err := error(classify(&url.Error{Op: "Get", URL: "http://h", Err: cause}, stageConnect))
	if _, ok := errors.AsType[*guard.ForbiddenError](err); !ok {
		t.Errorf("%v hides its cause", err)
	}
}

// TestForwardStalledUpload checks that an origin that stops reading a body is given up, and that
// the client gets an answer.
func TestForwardStalledUpload(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	origin := rawOrigin(t, func(_ net.Conn, br *bufio.Reader) {
		skipHead(br)
		<-stop
	})
	g := startGateway(t, "h1", origin)
	g.forwarder.idle = 50 * time.Millisecond
	resp := send(t, g.client(t), request(t, t.Context(), "POST", g.URL, io.LimitReader(endless{}, 64<<20)))
	if res := g.result(t); resp.StatusCode != http.StatusBadGateway || res.Err.Kind != KindStalled {
		t.Errorf("status %d, error %v, want 502 for stalled", resp.StatusCode, res.Err)
	}
	close(stop)
}

// TestForwardMaxForwards checks RFC 9110 section 7.6.2.
func TestForwardMaxForwards(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "origin "+r.Header.Get("Max-Forwards"))
	}), "h1")
	g := startGateway(t, "h1", origin)
	for _, tt := range []struct {
		method, sent string
		status       int
		want         string
	}{
		{"OPTIONS", "0", 200, ""},
		{"TRACE", "0", 501, ""},
		{"OPTIONS", "1", 200, "origin 0"},
		{"TRACE", "10", 200, "origin 9"},
		{"OPTIONS", "many", 200, "origin many"},
		{"GET", "0", 200, "origin 0"},
	} {
		r := request(t, t.Context(), tt.method, g.URL+"/a", nil)
		r.Header.Set("Max-Forwards", tt.sent)
		resp := send(t, g.client(t), r)
		if got := readAll(t, resp); resp.StatusCode != tt.status || got != tt.want {
			t.Errorf("%s with %s: status %d, body %q; want %d, %q", tt.method, tt.sent, resp.StatusCode, got, tt.status, tt.want)
		}
		if res := g.result(t); res.Status != tt.status || !res.Started || res.Err != nil {
			t.Errorf("%s with %s: result %+v", tt.method, tt.sent, res)
		}
	}
}

// TestForwardFailedDialIsTold checks that the result of a failed dial has the address and the time.
func TestForwardFailedDialIsTold(t *testing.T) {
	t.Parallel()
	f := &Forwarder{Transport: newTestTransport(t, TransportConfig{})}
	for _, target := range []string{fmt.Sprintf("http://127.0.0.1:%d/", freePort(t)), "http://10.0.0.1:80/"} {
		var res Result
		if err := forward(f, newDiscard(), request(t, t.Context(), "GET", target, nil), mustURL(t, target), &res); err == nil {
			t.Fatalf("%s: the request succeeded", target)
		}
		if got := "http://" + res.Dialed.Addr.String() + "/"; got != target || (res.Dialed.Connect == 0) != (res.Err.Kind == KindForbidden) {
			t.Errorf("%s: the dial is reported as %+v", target, res.Dialed)
		}
	}
}

// halfAnswered answers the part of a body that it gets. net/http does so if the origin's answer
// arrives between the end of the body and the end of the connection.
type halfAnswered struct{}

func (halfAnswered) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}, nil
}

// TestAnswerToHalfABody checks that no client gets the answer to a part of its body as if it were
// the answer to the whole.
func TestAnswerToHalfABody(t *testing.T) {
	t.Parallel()
	origin := startServer(t, http.NotFoundHandler(), "h1")
	for _, tt := range []struct {
		name string
		body string
		want Kind
	}{
		{"ends too late", "POST " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", KindClientTimeout},
		{"is no body", "POST " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nx\r\n", KindClientBody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, "h1", origin)
			g.forwarder.BodyTimeout = 50 * time.Millisecond
			g.forwarder.Transport.direct.shared.RegisterProtocol("http", halfAnswered{})
			conn, br := g.raw(t)
			_, _ = io.WriteString(conn, tt.body)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadGateway { // the test's answer to any failure
				t.Errorf("status %d, want 502", resp.StatusCode)
			}
			if res := <-g.results; res.Err == nil || res.Err.Kind != tt.want {
				t.Errorf("error %v, want kind %v", res.Err, tt.want)
			}
		})
	}
}
