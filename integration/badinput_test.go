package integration

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// siteRef stands in the rows of these tests for the authority of an origin that is there and would answer.
const siteRef = "SITE"

// TestUnreadableRequests sends what is no request that a handler could be given. net/http answers it; the gateway's own
// log and a metric tell that it was there, and nothing reaches the origin.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{})
	const host = "Host: SITE\r\n"
	for i, tt := range []struct {
		name   string
		octets string
		status int
	}{
		{"no method", " http://SITE/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"no version", "GET http://SITE/\r\n" + host + "\r\n", 400},
		{"a version that is none", "GET http://SITE/ HTTP/one\r\n" + host + "\r\n", 400},
		{"a version that nobody speaks", "GET http://SITE/ HTTP/9.9\r\n" + host + "\r\n", 505},
		{"a blank in the target", "GET http://SITE/a b HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a tab in the target", "GET http://SITE/a\tb HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a NUL in the target", "GET http://SITE/a\x00b HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a broken escape", "GET http://SITE/a%zz HTTP/1.1\r\n" + host + "\r\n", 400},
		{"brackets around no address", "GET http://[127.0.0.1]/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"an authority alone", "GET SITE/with/a/path HTTP/1.1\r\n" + host + "\r\n", 400},
		{"a method of odd octets", "G{}T http://SITE/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"CONNECT to a port that is none", "CONNECT example.com:http HTTP/1.1\r\n" + host + "\r\n", 400},
		{"no Host", "GET http://SITE/ HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", "GET http://SITE/ HTTP/1.1\r\n" + host + "Host: other.example\r\n\r\n", 400},
		{"a Host that is none", "GET http://SITE/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"a blank before a colon", "GET http://SITE/ HTTP/1.1\r\n" + host + "X-A : b\r\n\r\n", 400},
		{"a field without colon", "GET http://SITE/ HTTP/1.1\r\n" + host + "nonsense\r\n\r\n", 400},
		{"a CR within a field", "GET http://SITE/ HTTP/1.1\r\n" + host + "X-A: b\rc\r\n\r\n", 400},
		{"two lengths", "POST http://SITE/ HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		{"a length below zero", "POST http://SITE/ HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
		{"a transfer coding that nobody has", "POST http://SITE/ HTTP/1.1\r\n" + host + "Transfer-Encoding: x\r\n\r\n", 501},
		{"binary", "\x01\x02\x03\xff\xfe\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\r\n\r\n", 400},
		{"a header bomb", "GET http://SITE/ HTTP/1.1\r\n" + host + strings.Repeat("X-Bomb: "+strings.Repeat("b", 4000)+"\r\n", 500) + "\r\n", 431},
		{"a URL of 64 KiB", "GET http://SITE/" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431},
		{"a query of 64 KiB", "GET http://SITE/?" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431},
		{"a URL of 2 MiB", "GET http://SITE/" + strings.Repeat("a", 2<<20) + " HTTP/1.1\r\n" + host + "\r\n", 431},
	} {
		w := g.dial()
		a, err := w.ask(http.MethodGet, strings.ReplaceAll(tt.octets, siteRef, site.Origin().Authority()))
		if err != nil || a.status != tt.status {
			t.Errorf("%s: status %d, %v, want %d", tt.name, a.status, err, tt.status)
		}
		if n, err := w.r.Peek(1); err != io.EOF {
			t.Errorf("%s: the connection goes on: %q, %v", tt.name, n, err)
		}
		eventually(t, tt.name+" is counted", func() bool { return g.metric("crawlgate_unreadable_requests_total") == float64(i+1) })
	}
	if out := g.stderr.String(); !strings.Contains(out, "request could not be read") {
		t.Errorf("the gateway's own log has no line: %s", out)
	}
	if n := site.Exchanges(); len(n) > 0 {
		t.Errorf("the origin was asked: %+v", n)
	}
}

// TestTLSToThePlainPort speaks TLS where HTTP is expected, as some clients do with an https proxy URL (clients.md 10).
func TestTLSToThePlainPort(t *testing.T) {
	t.Parallel()
	g := startGateway(t, gatewayConfig{Global: "servers {\ntimeouts {\nread_header 2s\n}\n}"})
	w := g.dial()
	a, err := w.ask(http.MethodGet, clientHello(t))
	if err != nil || a.status != http.StatusBadRequest {
		t.Errorf("the answer is %d, %v", a.status, err)
	}
	eventually(t, "the connection is counted", func() bool { return g.metric("crawlgate_unreadable_requests_total") == 1 })
}

// clientHello is the first message of TLS, without a line feed in the first 24 octets. The server has read these when it
// looks for the preface of HTTP/2; where they are a whole line, net/http refuses it without reading on, and reports the
// connection as one that was never active: it gets its 400 but is not counted.
func clientHello(t *testing.T) string {
	t.Helper()
	for {
		client, server := net.Pipe()
		go func() { _ = tls.Client(client, &tls.Config{ServerName: "example.com"}).HandshakeContext(t.Context()) }()
		hello := make([]byte, 4096)
		n, err := server.Read(hello)
		_, _ = client.Close(), server.Close()
		if err != nil || n < 24 {
			t.Fatalf("%d octets of a handshake: %v", n, err)
		}
		if !bytes.ContainsRune(hello[:24], '\n') {
			return string(hello[:n])
		}
	}
}

// TestRefusedTargets sends requests whose target is not canonical or not understood. Each gets 400 with an access-log line
// that says so, and nothing reaches the origin.
func TestRefusedTargets(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{})
	for i, tt := range []struct{ name, line string }{
		{"userinfo", "GET http://user:password@SITE/"},
		{"an empty userinfo", "GET http://@SITE/"},
		{"no host", "GET http:///path"},
		{"an opaque URL", "GET mailto:bots@example.com"},
		{"a scheme that crawlers do not speak", "GET gopher://SITE/"},
		{"a file", "GET file:///etc/passwd"},
		{"port 0", "GET http://127.0.0.1:0/"},
		{"port 65536", "GET http://127.0.0.1:65536/"},
		{"a decimal address", "GET http://2130706433/"},
		{"a hexadecimal address", "GET http://0x7f.1/"},
		{"an octal address", "GET http://0177.0.0.1/"},
		{"a short address", "GET http://127.1/"},
		{"an empty label", "GET http://a..example/"},
		{"two trailing dots", "GET http://example.com../"},
		{"a label of 64 octets", "GET http://" + strings.Repeat("a", 64) + ".example/"},
		{"an IPv6 zone", "GET http://[fe80::1%25eth0]/"},
		{"CONNECT without port", "CONNECT example.com"},
		{"CONNECT with an empty port", "CONNECT example.com:"},
		{"CONNECT to port 0", "CONNECT example.com:0"},
		{"CONNECT with userinfo", "CONNECT user:password@SITE"},
		{"CONNECT to a URL", "CONNECT http://SITE/"},
		{"CONNECT to a path", "CONNECT /path"},
		{"CONNECT with a query", "CONNECT SITE?x"},
		{"CONNECT to a decimal address", "CONNECT 2130706433:443"},
	} {
		line := strings.ReplaceAll(tt.line, siteRef, site.Origin().Authority())
		method, target, _ := strings.Cut(line, " ")
		w := g.dial()
		a, err := w.ask(method, line+" HTTP/1.1\r\nHost: "+site.Origin().Authority()+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
		if err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.header.Get("Proxy-Status"), "crawlgate; error=") {
			t.Errorf("%s: status %d, Proxy-Status %q, %v: %.200s", tt.name, a.status, a.header.Get("Proxy-Status"), err, a.body)
		}
		if strings.Contains(a.body, "password") {
			t.Errorf("%s: the answer repeats the credentials: %s", tt.name, a.body)
		}
		l := g.logs(i + 1)[i]
		if l.Status != http.StatusBadRequest || l.Robots.Reason != enforce.ReasonBadTarget || l.Request.Method != method {
			t.Errorf("%s: logged as %s", tt.name, l.raw)
		}
		if hidden := strings.Contains(l.Request.URI, "REDACTED"); hidden != strings.Contains(strings.TrimPrefix(target, "http://@"), "@") || !hidden && l.Request.URI != target {
			t.Errorf("%s: logged for %q", tt.name, l.Request.URI)
		}
	}
	if n := site.Exchanges(); len(n) > 0 {
		t.Errorf("the origin was asked: %+v", n)
	}
}

// TestBinaryRobotsTxt gives a robots.txt of 64 KiB of all octets, with a rule on a line of its own in the middle.
func TestBinaryRobotsTxt(t *testing.T) {
	t.Parallel()
	var noise strings.Builder
	for i := range 64 << 10 {
		noise.WriteByte(byte(i * 7 / 3))
	}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(noise.String() + "\nUser-agent: *\nDisallow: /private\n" + noise.String()))
	g := startGateway(t, gatewayConfig{})
	for page, want := range map[string]int{openPage: http.StatusOK, privatePage: http.StatusForbidden} {
		if a := g.mustFetch("Tester/1.0", site.URL(page)); a.status != want {
			t.Errorf("%s: status %d, want %d: %q", page, a.status, want, a.body)
		}
	}
}
