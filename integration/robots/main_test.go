//go:build slow

package robots

import (
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

func TestMain(m *testing.M) { rig.Main(m.Run) }
