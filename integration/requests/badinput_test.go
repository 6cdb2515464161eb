package requests

import (
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
	if a, err := w.Ask(http.MethodGet, rig.ClientHello(t, "example.com")); a.Status != http.StatusBadRequest {
		t.Errorf("the answer is %d, %v", a.Status, err)
	}
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
