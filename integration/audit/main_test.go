//go:build slow

package audit

import (
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

func TestMain(m *testing.M) { rig.Main(m.Run) }
