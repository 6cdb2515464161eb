package crawlgate

import (
	"testing"

	"github.com/crawlgate/crawlgate/internal/testgateway"
)

func TestMain(m *testing.M) { testgateway.Main(m) }
