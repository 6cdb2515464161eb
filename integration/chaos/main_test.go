//go:build slow

package chaos

import (
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

func TestMain(m *testing.M) { rig.Main(m.Run) }

// rules of a site, and two of its pages.
const (
	rules       = "User-agent: *\nDisallow: /private\nDisallow: /deep/*.pdf$\n"
	privatePage = "/private/page"
	openPage    = "/open"
)

// patience bounds every exchange of a test with the gateway.
const patience = 60 * time.Second
