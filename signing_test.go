package crawlgate

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// TestUnsignedByAnotherHandler checks that the log marks a request that another handler sends as
// not signed by the gateway.
func TestUnsignedByAnotherHandler(t *testing.T) {
	key, err := webbotauth.Generate(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "acmebot.jwk")
	if err := os.WriteFile(file, webbotauth.Keys{key}.Private(), 0o600); err != nil {
		t.Fatal(err)
	}
	g := testgateway.New(t, fmt.Sprintf("egress off\nmode off\nagent acmebot {\nsign {\nkeys %s\ndirectory https://bot.example\n}\n}", file), "")
	if status := g.Visit("http://shop.example/", "acmebot/1"); status != http.StatusOK {
		t.Fatal(status)
	}
	if line := g.Lines(1)[0]; line["unsigned"] != "egress_off" || line["signed"] != nil {
		t.Errorf("log entry = %v, want the reason egress_off and no signature", line)
	}
}
