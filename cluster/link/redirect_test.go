package link

import (
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestASlotMoves checks a slot that moves to another node. Until then Redis refuses scripts whose
// keys are not all on one side (TRYAGAIN), so the link is down. A call with a new key goes to the
// other node (ASK). Once the slot has moved, all calls go there (MOVED), and the link is up again.
func TestASlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	b := beating(t, c.URL())
	before := int64(0)
	to := c.Move(b.Key("gateways"), func() {
		redistest.Eventually(t, "the link to be down", func() bool {
			s := b.State()
			return !s.Up && strings.Contains(s.Why.Error(), "TRYAGAIN")
		})
		if err := b.Client().Do(t.Context(), b.Client().B().Set().Key(b.Key("new")).Value("1").Build()).Error(); err != nil {
			t.Errorf("writing a new key: %v", err)
		}
		before = b.n.Load()
	})
	b.returns(t, before, hasGateway(to))
	if got := to.Say("GET " + b.Key("new")); got != "$1\r\n1\r\n" {
		t.Errorf("the new key is %q, want 1", got)
	}
}
