package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// halfConn is the client's end in tests: a tunnel whose sending half can be closed.
type halfConn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// connect sends a CONNECT to a gateway over HTTP/1.1 or HTTP/2.
func connect(tb testing.TB, gw *httptest.Server, authority string) (*http.Response, halfConn) {
	tb.Helper()
	if gw.TLS != nil {
		return connectH2(tb, gw, authority)
	}
	c, br := rawConn(tb, gw)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		tb.Fatal(err)
	}
	return resp, h1Tunnel{replay(c, br, c)}
}

type h1Tunnel struct{ *replayConn }

func (c h1Tunnel) CloseWrite() error { return closeWrite(c.replayConn) }

type h2Tunnel struct {
	io.ReadCloser
	*io.PipeWriter
	cancel context.CancelFunc
}

func (c *h2Tunnel) CloseWrite() error { return c.PipeWriter.Close() }
func (c *h2Tunnel) Close() error      { c.cancel(); c.PipeWriter.Close(); return c.ReadCloser.Close() }

func connectH2(tb testing.TB, gw *httptest.Server, authority string) (*http.Response, halfConn) {
	tb.Helper()
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: certPool(gw)}}
	tb.Cleanup(tr.CloseIdleConnections)
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(tb.Context())
	r := request(tb, ctx, http.MethodConnect, gw.URL, pr)
	r.URL.Path, r.Host = "", authority
	resp, err := tr.RoundTrip(r)
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	c := &h2Tunnel{resp.Body, pw, cancel}
	tb.Cleanup(func() { c.Close() })
	return resp, c
}

// startConnect starts a server that passes every tunnel to serve, and reports when the handler has
// returned.
func startConnect(tb testing.TB, proto string, serve func(*http.Request, *Tunnel)) (*httptest.Server, <-chan struct{}) {
	tb.Helper()
	done := make(chan struct{}, 100)
	return startServer(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { done <- struct{}{} }()
		tunnel, err := Accept(w, r)
		if err != nil {
			tb.Error(err)
			return
		}
		defer tunnel.Close()
		serve(r, tunnel)
	}), proto), done
}

// sayEcho reads all of a connection and then sends it back.
func sayEcho(c net.Conn, br *bufio.Reader) {
	got, _ := io.ReadAll(br)
	fmt.Fprintf(c, "echo %s", got)
}

func TestTunnelRelay(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) { // answer at once, so that HTTP/2 needs no half-close
		line, _ := br.ReadString('\n')
		fmt.Fprintf(c, "echo %s", line)
	})
	tr := newTestTransport(t, TransportConfig{})
	for _, proto := range []string{"h1", "h2"} {
		gw, done := startConnect(t, proto, func(r *http.Request, tunnel *Tunnel) {
			up, err := tr.DialTunnel(r.Context(), "127.0.0.1", portOf(t, origin))
			if err != nil {
				t.Error(err)
				return
			}
			if err := tunnel.Relay(r.Context(), up); err != nil {
				t.Errorf("%s: %v", proto, err)
			}
		})
		resp, c := connect(t, gw, "site:443")
		if resp.StatusCode != http.StatusOK || resp.TransferEncoding != nil {
			t.Errorf("%s: status %d, coding %v", proto, resp.StatusCode, resp.TransferEncoding)
		}
		io.WriteString(c, "hello\n")
		if got, err := io.ReadAll(c); err != nil || string(got) != "echo hello\n" {
			t.Errorf("%s: got %q, error %v", proto, got, err)
		}
		c.Close()
		<-done
	}
}

// wrapHijack hides the connection's own methods, like Caddy's response recorder.
type wrapHijack struct {
	http.ResponseWriter
	status int
}

func (w *wrapHijack) WriteHeader(code int) { w.status = code; w.ResponseWriter.WriteHeader(code) }

func (w *wrapHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return struct{ net.Conn }{c}, rw, err
}

// TestTunnelHalfClose checks that each direction ends separately, even if the server wraps the
// hijacked connection. The writer gets the status.
func TestTunnelHalfClose(t *testing.T) {
	t.Parallel()
	origin := rawOrigin(t, sayEcho)
	tr := newTestTransport(t, TransportConfig{})
	statuses := make(chan int, 1)
	gw := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wrapped := &wrapHijack{ResponseWriter: w}
		tunnel, err := Accept(wrapped, r)
		if err != nil {
			t.Error(err)
			return
		}
		up, err := tr.DialTunnel(r.Context(), "127.0.0.1", portOf(t, origin))
		if err != nil {
			t.Error(err)
			return
		}
		if err := tunnel.Relay(r.Context(), up); err != nil {
			t.Error(err)
		}
		statuses <- wrapped.status
	}), "h1")
	_, c := connect(t, gw, "site:443")
	io.WriteString(c, "hello")
	c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "echo hello" {
		t.Errorf("got %q, error %v", got, err)
	}
	if status := <-statuses; status != http.StatusOK {
		t.Errorf("the writer got the status %d, want 200", status)
	}
}

// TestTunnelOriginEndsFirst checks that the client notices the origin's end and can still send.
func TestTunnelOriginEndsFirst(t *testing.T) {
	t.Parallel()
	rest := make(chan string, 1)
	origin := rawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		io.WriteString(c, "bye")
		c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(br)
		rest <- string(got)
	})
	tr := newTestTransport(t, TransportConfig{})
	gw, done := startConnect(t, "h1", func(r *http.Request, tunnel *Tunnel) {
		up, err := tr.DialTunnel(r.Context(), "127.0.0.1", portOf(t, origin))
		if err != nil {
			t.Error(err)
			return
		}
		if err := tunnel.Relay(r.Context(), up); err != nil {
			t.Error(err)
		}
	})
	_, c := connect(t, gw, "site:443")
	if got, err := io.ReadAll(c); err != nil || string(got) != "bye" {
		t.Errorf("got %q, error %v", got, err)
	}
	io.WriteString(c, "more")
	c.CloseWrite()
	if got := <-rest; got != "more" {
		t.Errorf("the origin got %q, want more", got)
	}
	<-done
}

// TestTunnelAcceptHTTP10 sends CONNECT in HTTP/1.0 without any field, like Python before 3.12, and
// does not wait for the answer, like some clients.
func TestTunnelAcceptHTTP10(t *testing.T) {
	t.Parallel()
	gw, _ := startConnect(t, "h1", func(_ *http.Request, tunnel *Tunnel) {
		got, _ := io.ReadAll(tunnel)
		fmt.Fprintf(tunnel, "got %s", got)
	})
	c, br := rawConn(t, gw)
	io.WriteString(c, "CONNECT site:443 HTTP/1.0\r\n\r\nearly")
	c.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(br); err != nil || string(all) != "HTTP/1.1 200 Connection established\r\n\r\ngot early" {
		t.Errorf("got %q, error %v", all, err)
	}
}

func TestTunnelFirst(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		for sent, want := range map[string]First{
			"":                       FirstClosed,
			"\x16\x03\x01":           FirstTLS,
			"GET / HTTP/1.1\r\n":     FirstHTTP,
			"post / HTTP/1.1":        FirstHTTP,
			"\x80\x2e\x01\x03\x01":   FirstOther, // SSL 2.0's hello
			"\x00":                   FirstOther,
			"\x05\x01\x00":           FirstOther, // SOCKS
			"\r\nGET / HTTP/1.1":     FirstOther,
			"PRI * HTTP/2.0\r\n\r\n": FirstHTTP,
		} {
			type seen struct {
				first First
				rest  string
			}
			result := make(chan seen, 1)
			gw, done := startConnect(t, proto, func(r *http.Request, tunnel *Tunnel) {
				first := tunnel.First(r.Context(), time.Minute)
				rest, _ := io.ReadAll(tunnel)
				result <- seen{first, string(rest)}
			})
			_, c := connect(t, gw, "site:443")
			io.WriteString(c, sent)
			c.CloseWrite()
			if got := <-result; got.first != want || got.rest != sent {
				t.Errorf("%s, %q: %+v, want %v", proto, sent, got, want)
			}
			<-done
		}
	}
}

// TestTunnelFirstSilent checks that a silent client is noticed in time and can still speak
// afterwards.
func TestTunnelFirstSilent(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		silent, result := make(chan First), make(chan First, 1)
		gw, done := startConnect(t, proto, func(r *http.Request, tunnel *Tunnel) {
			silent <- tunnel.First(r.Context(), 20*time.Millisecond)
			result <- tunnel.First(r.Context(), time.Minute)
		})
		_, c := connect(t, gw, "site:443")
		if got := <-silent; got != FirstSilent {
			t.Errorf("%s: %v, want silent", proto, got)
		}
		io.WriteString(c, "G")
		if got := <-result; got != FirstHTTP {
			t.Errorf("%s: then %s, want http", proto, got)
		}
		c.Close()
		<-done
	}
}

// TestTunnelClientLeaves checks that the end of a client's HTTP/2 stream ends the wait for its
// first byte.
func TestTunnelClientLeaves(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		waiting, result := make(chan struct{}), make(chan First, 1)
		gw, done := startConnect(t, proto, func(r *http.Request, tunnel *Tunnel) {
			close(waiting)
			result <- tunnel.First(r.Context(), time.Minute)
		})
		_, c := connect(t, gw, "site:443")
		<-waiting
		c.Close()
		if got := <-result; got != FirstClosed {
			t.Errorf("%s: got %v, want closed", proto, got)
		}
		<-done
	}
}

// TestTunnelFirstEndsWithContext checks that the end of the context closes the tunnel.
func TestTunnelFirstEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	gw, _ := startConnect(t, "h1", func(_ *http.Request, tunnel *Tunnel) {
		if first := tunnel.First(ctx, time.Minute); first != FirstClosed {
			t.Errorf("got %v, want closed", first)
		}
		_, err := tunnel.Read(make([]byte, 1))
		result <- err
	})
	connect(t, gw, "site:443")
	cancel()
	if err := <-result; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the wait, reading fails with %v, want net.ErrClosed", err)
	}
}

func TestTunnelServerName(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		names := make(chan string, 1)
		gw, done := startConnect(t, proto, func(r *http.Request, tunnel *Tunnel) {
			name, err := tunnel.ServerName(r.Context(), time.Minute)
			if err != nil {
				t.Error(err)
			}
			names <- name
			// The bytes were not consumed: a handshake works.
			server := tls.Server(tunnel, &tls.Config{Certificates: gwCertificate(t)})
			fmt.Fprint(server, "hi")
			server.Close()
		})
		_, c := connect(t, gw, "site.example:443")
		client := tls.Client(&duplex{c}, &tls.Config{ServerName: "site.example", NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true})
		got, err := io.ReadAll(client)
		if err != nil || string(got) != "hi" {
			t.Errorf("%s: got %q, error %v", proto, got, err)
		}
		if name := <-names; name != "site.example" {
			t.Errorf("%s: name %q", proto, name)
		}
		c.Close()
		<-done
	}
}

// duplex is a net.Conn over a test's end of a tunnel.
type duplex struct{ halfConn }

func (*duplex) LocalAddr() net.Addr              { return textAddr("") }
func (*duplex) RemoteAddr() net.Addr             { return textAddr("") }
func (*duplex) SetDeadline(time.Time) error      { return nil }
func (*duplex) SetReadDeadline(time.Time) error  { return nil }
func (*duplex) SetWriteDeadline(time.Time) error { return nil }

func gwCertificate(tb testing.TB) []tls.Certificate {
	tb.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.TLS.Certificates
}

// TestTunnelServerNameSlow checks that the wait for a hello in small pieces is exactly as long as
// allowed.
func TestTunnelServerNameSlow(t *testing.T) {
	t.Parallel()
	hello := captureHello(t, &tls.Config{ServerName: "slow.example"})
	result := make(chan error, 1)
	names := make(chan string, 1)
	gw, done := startConnect(t, "h1", func(r *http.Request, tunnel *Tunnel) {
		name, err := tunnel.ServerName(r.Context(), time.Minute)
		names <- name
		result <- err
		_, err = tunnel.ServerName(r.Context(), 0)
		result <- err
	})
	_, c := connect(t, gw, "site:443")
	for i := range hello {
		c.Write(hello[i : i+1])
	}
	if name := <-names; name != "slow.example" {
		t.Errorf("name %q, error %v", name, <-result)
	}
	<-result
	if err := <-result; err != nil { // the hello has already been read ahead
		t.Error(err)
	}
	<-done
	gw, _ = startConnect(t, "h1", func(r *http.Request, tunnel *Tunnel) {
		_, err := tunnel.ServerName(r.Context(), 20*time.Millisecond)
		result <- err
	})
	_, c = connect(t, gw, "site:443")
	c.Write(hello[:len(hello)-1])
	if err := <-result; !isTimeout(err) {
		t.Errorf("half a hello: %v", err)
	}
}

// TestAcceptOnUnsupportedWriter checks that a writer that cannot be hijacked is an error, not a
// panic.
func TestAcceptOnUnsupportedWriter(t *testing.T) {
	t.Parallel()
	if _, err := Accept(newDiscard(), httptest.NewRequest(http.MethodConnect, "site:443", nil)); err == nil {
		t.Error("Accept succeeded")
	}
}

// FuzzTunnel checks that reading ahead consumes no byte of a client in a tunnel, and waits for no
// more bytes than came.
func FuzzTunnel(f *testing.F) {
	for _, s := range []string{"", "G", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "SSH-2.0-x\r\n", "\x00", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		f.Add([]byte(s), []byte{})
	}
	f.Add(captureHello(f, &tls.Config{ServerName: "site.example"}), []byte{0, 3, 200})
	f.Fuzz(func(t *testing.T, said, sizes []byte) {
		tunnel := newTunnel(&pieces{rest: said, sizes: sizes})
		first := tunnel.First(t.Context(), time.Minute)
		switch {
		case len(said) == 0 && first != FirstClosed, len(said) > 0 && (said[0] == recordHandshake) != (first == FirstTLS):
			t.Errorf("%q begins with %v", said, first)
		case first == FirstTLS:
			name, err := tunnel.ServerName(t.Context(), time.Minute)
			if want, errWant := serverNameOf(t.Context(), said); (err == nil) != (errWant == nil) || name != want {
				t.Errorf("%q has the name %q, error %v; in other pieces %q, error %v", said, name, err, want, errWant)
			}
		}
		if through, err := io.ReadAll(tunnel); err != nil || string(through) != string(said) {
			t.Errorf("%q became %q, error %v", said, through, err)
		}
	})
}

// FuzzConnect reads the bytes of a CONNECT and checks that an accepted one names only a host and a
// port.
func FuzzConnect(f *testing.F) {
	for _, s := range []string{
		"h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", "[::1]:443 HTTP/1.1\r\n\r\n", "H:0443 HTTP/1.0\r\n\r\n", "u:p@h:443 HTTP/1.1\r\n\r\n",
		"h HTTP/1.1\r\nHost: h\r\n\r\n", "/h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", "h:443/ HTTP/1.1\r\n\r\n", "http://h:443 HTTP/1.1\r\n\r\n",
		" HTTP/1.1\r\nHost: h:443\r\n\r\n", "h:443?q HTTP/1.1\r\n\r\n", "h.:443 HTTP/1.1\r\n\r\n", "2130706433:80 HTTP/1.1\r\n\r\n", "h:443 HTTP/1.1\r\nHost: other\r\n\r\n\x16\x03\x01",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, bytes string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("CONNECT " + bytes)))
		if err != nil {
			return
		}
		authority, err := ConnectAuthority(r)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(authority)
		if err != nil || port == "" || r.RequestURI == "" || strings.ContainsAny(host, "/\\?#@") || strings.ContainsAny(r.RequestURI, "/\\?#@") {
			t.Errorf("%q is accepted as %q, error %v", r.RequestURI, authority, err)
		}
	})
}
