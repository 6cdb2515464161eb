//go:build slow

package operate

import (
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

func TestMain(m *testing.M) { rig.Main(m.Run) }
