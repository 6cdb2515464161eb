package integration

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestTLSToThePlainPort speaks TLS where HTTP is expected, as some clients do with an https proxy URL.
func TestTLSToThePlainPort(t *testing.T) {
	t.Parallel()
	g := startGateway(t, gatewayConfig{Global: "servers {\ntimeouts {\nread_header 2s\n}\n}"})
	w := g.dial()
	// net/http answers and closes at once, which may reset the connection while the body is read.
	if a, err := w.ask(http.MethodGet, clientHello(t)); a.status != http.StatusBadRequest {
		t.Errorf("the answer is %d, %v", a.status, err)
	}
}

// clientHello is the first message of TLS.
func clientHello(t *testing.T) string {
	t.Helper()
	client, server := net.Pipe()
	go func() { _ = tls.Client(client, &tls.Config{ServerName: "example.com"}).HandshakeContext(t.Context()) }()
	hello := make([]byte, 4096)
	n, err := server.Read(hello)
	_, _ = client.Close(), server.Close()
	if err != nil || n < 24 {
		t.Fatalf("%d bytes of a handshake: %v", n, err)
	}
	return string(hello[:n])
}

// TestBinaryRobotsTxt gives a robots.txt of 64 KiB of all bytes, with a rule on a line of its own in the middle.
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
