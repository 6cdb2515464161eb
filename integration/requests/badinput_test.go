package requests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestTLSToThePlainPort sends TLS to a port for HTTP, like some clients with an https proxy URL.
func TestTLSToThePlainPort(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Global: "servers {\ntimeouts {\nread_header 2s\n}\n}"})
	w := g.Dial()
	// net/http answers and closes at once, which may reset the connection before the client has
	// read the body.
	if a, err := w.Ask(http.MethodGet, rig.ClientHello(t, "example.com")); a.Status != http.StatusBadRequest {
		t.Errorf("status %d, error %v, want 400", a.Status, err)
	}
}

// TestBinaryRobotsTxt serves a robots.txt of 64 KiB of all bytes, with a rule on its own line in
// the middle.
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
