package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestRFC9309_2_3_1_4_BrokenAnswers checks raw bytes of a server that are no valid answer.
func TestRFC9309_2_3_1_4_BrokenAnswers(t *testing.T) {
	t.Parallel()
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct {
		name, raw string
		want      want
	}{
		{"nothing", "", want{KindUnreachable, CauseReset}},
		{"half a status line", "HTTP/1.1 20", want{KindUnreachable, CauseProtocol}},
		{"half a header", "HTTP/1.1 200 OK\r\nContent-Type: te", want{KindUnreachable, CauseReset}},
		{"no HTTP", "220 mail.example ESMTP\r\n\r\n", want{KindUnreachable, CauseProtocol}},
		{"HTTP/0.9", "User-agent: *\nDisallow:\n", want{KindUnreachable, CauseProtocol}},
		{"TLS alert", "\x15\x03\x01\x00\x02\x02\x0a", want{KindUnreachable, CauseProtocol}},
		{"status of letters", "HTTP/1.1 ABC OK\r\n\r\n", want{KindUnreachable, CauseProtocol}},
		{"status of two digits", "HTTP/1.1 20 OK\r\n\r\n", want{KindUnreachable, CauseProtocol}},
		{"status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", want{KindUnreachable, CauseProtocol}},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", want{KindUnreachable, CauseProtocol}},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", want{KindUnreachable, CauseProtocol}},
		{"header bomb", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", want{KindUnreachable, CauseProtocol}},
		{"many headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 100_000) + "\r\n", want{KindUnreachable, CauseProtocol}},
		{"short body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-agent: *\n", want{KindUnreachable, CauseTruncated}},
		{"no body of a length", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", want{KindUnreachable, CauseTruncated}},
		{"chunks that end", chunked + "5\r\nabcde\r\n", want{KindUnreachable, CauseTruncated}},
		{"chunk that ends", chunked + "5\r\nab", want{KindUnreachable, CauseTruncated}},
		{"chunk size of letters", chunked + "zz\r\nabc\r\n0\r\n\r\n", want{KindUnreachable, CauseTruncated}},
		{"chunk without its end", chunked + "3\r\nabcdef\r\n0\r\n\r\n", want{KindUnreachable, CauseTruncated}},
		{"endless chunk size", chunked + strings.Repeat("0", 10_000), want{KindUnreachable, CauseTruncated}},
		{"complete chunks", chunked + "3\r\nabc\r\n0\r\n\r\n", want{KindRules, ""}},
		{"chunks and a trailer", chunked + "3\r\nabc\r\n0\r\nX: y\r\n\r\n", want{KindRules, ""}},
		{"ended by the connection", "HTTP/1.0 200 OK\r\n\r\nabc", want{KindRules, ""}},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", want{KindRules, ""}},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", want{KindRules, ""}},
		{"more than its length", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabcdef", want{KindRules, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := fetchReal(t, "http://"+rawServer(t, replying(tt.raw)))
			tt.want.check(t, out)
			if out.Kind == KindRules && out.Status != 200 {
				t.Errorf("status %d, want 200", out.Status)
			}
		})
	}
}

func TestRFC9309_2_3_1_4_ConnectionRefused(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	hangUp(ln)
	out := fetchReal(t, "http://"+addr)
	want{KindUnreachable, CauseConnect}.check(t, out)
	if strings.Contains(out.Detail, "127.0.0.1") {
		t.Errorf("detail %q has an address", out.Detail)
	}
}

func TestRFC9309_2_3_1_4_ConnectionReset(t *testing.T) {
	t.Parallel()
	t.Run("before the header", func(t *testing.T) {
		t.Parallel()
		want{KindUnreachable, CauseReset}.check(t, fetchReal(t, "http://"+rawServer(t, func(conn net.Conn) {
			replying("")(conn)
			hangUpHard(conn)
		})))
	})
	t.Run("in the body", func(t *testing.T) {
		t.Parallel()
		// The reset must not overtake the header, so it is sent when the body is read.
		ready := make(chan struct{})
		addr := rawServer(t, func(conn net.Conn) {
			replying("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")(conn)
			<-ready
			hangUpHard(conn)
		})
		inner := realTransport(t)
		f := New(Config{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(req)
			close(ready)
			return resp, err
		})})
		want{KindUnreachable, CauseTruncated}.check(t, f.Fetch(t.Context(), mustKey(t, "http://"+addr), nil))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// TestRFC9309_2_3_1_4_DNS checks name servers that fail in different ways.
func TestRFC9309_2_3_1_4_DNS(t *testing.T) {
	t.Parallel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("name server 10.9.8.7 is away")
	}}
	tr := realTransport(t)
	tr.DialContext = (&net.Dialer{Resolver: resolver}).DialContext
	out := New(Config{Transport: tr}).Fetch(t.Context(), mustKey(t, "http://no-such-host.example"), nil)
	want{KindUnreachable, CauseDNS}.check(t, out)
}

// TestExt_DNSDetail checks that the detail hides the address of the resolver.
func TestExt_DNSDetail(t *testing.T) {
	t.Parallel()
	err := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x.example", Server: "10.9.8.7:53", IsNotFound: true}}
	out := New(Config{Transport: &script{tb: t, errs: map[string]error{"http://x.example/robots.txt": err}}}).
		Fetch(t.Context(), mustKey(t, "http://x.example"), nil)
	want{KindUnreachable, CauseDNS}.check(t, out)
	if out.Detail != "no such host" {
		t.Errorf("detail = %q, want no such host", out.Detail)
	}
}

// TestTellHidesTheInside checks that no error of the network tells a client an internal host or
// address.
func TestTellHidesTheInside(t *testing.T) {
	t.Parallel()
	inside := errors.New("lookup redis.internal on 10.0.0.2:53: dial crawl-upstream.corp")
	deep := &net.OpError{Op: "read", Net: "udp", Source: &net.UDPAddr{IP: net.IPv4(10, 0, 0, 7)}, Addr: &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2)}, Err: inside}
	for i, err := range []error{
		inside, deep, fmt.Errorf("dialing: %w", deep),
		&net.OpError{Op: "dial", Err: inside},
		&net.OpError{Op: "dial", Err: &net.AddrError{Err: "mismatched", Addr: "redis.internal"}},
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: inside.Error(), Name: "redis.internal", Server: "10.0.0.2:53"}},
		&net.DNSError{Err: inside.Error(), IsTimeout: true}, &net.DNSError{Err: "no such host", Name: "redis.internal", IsNotFound: true},
		&net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		&net.OpError{Op: "read", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}, Err: os.ErrDeadlineExceeded},
		guardError(CauseForbiddenAddress), guardError(CauseOwnListener),
	} {
		f := failed(t.Context(), err)
		told := f.cause.Tell(f.detail)
		for _, hidden := range []string{"redis", "internal", "10.0", "corp"} {
			if told == "" || strings.Contains(told, hidden) {
				t.Errorf("error %d, cause %s: Tell returns %q for %q", i, f.cause, told, f.detail)
			}
		}
	}
	for _, c := range append(allCauses(), "", "of another version") {
		if told := c.Tell("status 503"); told == "" {
			t.Errorf("cause %s: Tell returns nothing", c)
		}
	}
	if told := Cause("of another version").Tell("10.0.0.2"); strings.Contains(told, "10.0.0.2") {
		t.Errorf("Tell of an unknown cause returns %q", told)
	}
}

func quiet(srv *httptest.Server) { srv.Config.ErrorLog = log.New(io.Discard, "", 0) }

func TestRFC9309_2_3_1_4_TLS(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { say(w, rules) })
	start := func(t *testing.T, cfg *tls.Config) *httptest.Server {
		t.Helper()
		srv := httptest.NewUnstartedServer(handler)
		quiet(srv)
		srv.TLS = cfg
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv
	}
	trusting := func(t *testing.T, srv *httptest.Server) *http.Transport {
		t.Helper()
		tr := realTransport(t)
		tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		return tr
	}
	get := func(t *testing.T, tr http.RoundTripper, rawURL string) Outcome {
		t.Helper()
		return New(Config{Transport: tr}).Fetch(t.Context(), mustKey(t, rawURL), nil)
	}

	t.Run("good", func(t *testing.T) {
		t.Parallel()
		srv := start(t, nil)
		want{KindRules, ""}.check(t, get(t, trusting(t, srv), srv.URL))
	})
	t.Run("unknown authority", func(t *testing.T) {
		t.Parallel()
		want{KindUnreachable, CauseTLS}.check(t, get(t, realTransport(t), start(t, nil).URL))
	})
	t.Run("another name", func(t *testing.T) {
		t.Parallel()
		srv := start(t, nil)
		tr := trusting(t, srv)
		tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
		}
		want{KindUnreachable, CauseTLS}.check(t, get(t, tr, "https://other.test"))
	})
	t.Run("no common version", func(t *testing.T) {
		t.Parallel()
		srv := start(t, &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12})
		tr := trusting(t, srv)
		tr.TLSClientConfig.MinVersion = tls.VersionTLS13
		want{KindUnreachable, CauseTLS}.check(t, get(t, tr, srv.URL))
	})
	t.Run("plain HTTP", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(handler)
		t.Cleanup(srv.Close)
		want{KindUnreachable, CauseTLS}.check(t, get(t, realTransport(t), strings.Replace(srv.URL, "http:", "https:", 1)))
	})
	t.Run("no TLS", func(t *testing.T) {
		t.Parallel()
		addr := rawServer(t, func(conn net.Conn) { say(conn, "220 mail.example ESMTP\r\n") })
		want{KindUnreachable, CauseTLS}.check(t, get(t, realTransport(t), "https://"+addr))
	})
	t.Run("closed in the handshake", func(t *testing.T) {
		t.Parallel()
		addr := rawServer(t, func(conn net.Conn) { _, _ = io.ReadFull(conn, make([]byte, 100)) })
		want{KindUnreachable, CauseReset}.check(t, get(t, realTransport(t), "https://"+addr))
	})
}

// TestRFC9309_2_3_1_4_HTTP2 checks that failures of HTTP/2 have the same causes.
func TestRFC9309_2_3_1_4_HTTP2(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("Disallow: /x\n", 100_000)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("request over %s", r.Proto)
		}
		switch r.UserAgent() {
		case "abort":
			panic(http.ErrAbortHandler)
		case "abort-body":
			say(w, rules)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "short":
			w.Header().Set("Content-Length", "1000")
			say(w, rules)
		case "big":
			say(w, big)
		default:
			say(w, rules)
		}
	}))
	quiet(srv)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	tr := realTransport(t)
	tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	for _, tt := range []struct {
		agent string
		want  want
	}{
		{"good", want{KindRules, ""}},
		{"big", want{KindRules, ""}},
		{"abort", want{KindUnreachable, CauseReset}},
		{"abort-body", want{KindUnreachable, CauseTruncated}},
		{"short", want{KindUnreachable, CauseTruncated}},
	} {
		out := New(Config{Transport: tr, UserAgent: tt.agent}).Fetch(t.Context(), mustKey(t, srv.URL), nil)
		if out.Kind != tt.want.kind || out.Cause != tt.want.cause {
			t.Errorf("%s: %s/%s (%s), want %s/%s", tt.agent, out.Kind, out.Cause, out.Detail, tt.want.kind, tt.want.cause)
		}
		if out.Truncated != (tt.agent == "big") {
			t.Errorf("%s: truncated is %v", tt.agent, out.Truncated)
		}
		checkOutcome(t, out)
	}
}

func TestExt_UserAgent(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"Bot/1.0 (+https://x.example)": "Bot/1.0 (+https://x.example)",
		"":                             "",
		"Bot\r\nX-Evil: 1":             "",
		"Bot\x00":                      "",
	} {
		var got []string
		f := New(Config{UserAgent: agent, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			got = req.Header.Values("User-Agent")
			return nil, io.EOF
		})})
		f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
		if len(got) != 1 || got[0] != want {
			t.Errorf("User-Agent for %q is %q, want %q", agent, got, want)
		}
	}
}

// TestExt_DetailTellsNoCredentials checks that a detail has no credentials; error texts may quote
// URLs.
func TestExt_DetailTellsNoCredentials(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("proxyconnect to http://user:hunter2@proxy.example:3128: no"),
		fmt.Errorf("dialing: %w", &net.OpError{Op: "proxyconnect", Err: errors.New(`parse "socks5://hunter2@p/": bad`)}),
		errors.New("a://hunter2@b c://d/ e://f:hunter2@g?h://i"),
		errors.New("bad \x00\x1b[31m\r\n\u00e9" + strings.Repeat("x", 1000)),
	} {
		f := New(Config{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })})
		out := f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
		if out.Kind != KindUnreachable || out.Detail == "" || strings.Contains(out.Detail, "hunter2") {
			t.Errorf("%v: %s, detail %q", err, out.Kind, out.Detail)
		}
		checkOutcome(t, out)
	}
}

// TestExt_ZeroOrigin checks that nothing is requested without an origin.
func TestExt_ZeroOrigin(t *testing.T) {
	t.Parallel()
	f := New(Config{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("no host in %q", req.URL)
	})})
	want{KindUnreachable, CauseProtocol}.check(t, f.Fetch(t.Context(), Key{}, nil))
}

func TestNewWithoutTransport(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("New without a transport did not panic")
		}
	}()
	New(Config{})
}
