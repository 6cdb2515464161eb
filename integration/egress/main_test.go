//go:build slow

package egress

import (
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

func TestMain(m *testing.M) { rig.Main(m.Run) }

// patience bounds every exchange of a test with the gateway.
const patience = 60 * time.Second
