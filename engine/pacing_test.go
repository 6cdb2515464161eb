package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock"
)

// TestTheNumberOfGatewaysFalls checks that the number falls after an hour with fewer gateways,
// although a call to Redis is late now and then. Until all had time to be counted again, the link
// keeps the earlier number, or the least.
func TestTheNumberOfGatewaysFalls(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &pacing{folder: folder, pacer: pace.New(pace.Config{}), logger: zap.NewNop(), last: redisclock.LastMembership{Gateways: 10}}
		for range 70 {
			p.counted(link.State{Clocks: 10, Since: time.Now()}, true)
			p.counted(link.State{Up: true, Clocks: 10, Since: time.Now()}, true)
			p.counted(link.State{Up: true, Clocks: 3, Since: time.Now().Add(-link.AliveFor)}, false)
			time.Sleep(time.Minute)
		}
		if p.last.Gateways != 3 {
			t.Errorf("%d gateways, want 3", p.last.Gateways)
		}
	})
}
