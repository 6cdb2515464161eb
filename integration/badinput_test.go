package integration

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestTLSToThePlainPort speaks TLS where HTTP is expected, as some clients do with an https proxy URL.
func TestTLSToThePlainPort(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Global: "servers {\ntimeouts {\nread_header 2s\n}\n}"})
	w := g.Dial()
	// net/http answers and closes at once, which may reset the connection while the body is read.
	if a, err := w.Ask(http.MethodGet, clientHello(t)); a.Status != http.StatusBadRequest {
		t.Errorf("the answer is %d, %v", a.Status, err)
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
	g := rig.New(t, rig.Config{})
	for page, want := range map[string]int{rig.OpenPage: http.StatusOK, rig.PrivatePage: http.StatusForbidden} {
		if a := g.MustFetch("Tester/1.0", site.URL(page)); a.Status != want {
			t.Errorf("%s: status %d, want %d: %q", page, a.Status, want, a.Body)
		}
	}
}
