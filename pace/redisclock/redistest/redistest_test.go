package redistest_test

import (
	"testing"

	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestCluster checks two properties that other tests need: each way of replacing a primary moves
// its keys to another node, and the old primary becomes a replica when it is back.
func TestCluster(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(c *redistest.Cluster, primary int){
		"killed":      func(c *redistest.Cluster, i int) { c.Nodes[i].Kill() },
		"failed over": (*redistest.Cluster).Failover,
		"taken over":  (*redistest.Cluster).TakeOver,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t)
			const key = "{acme}:key"
			before := c.Owner(key)
			replace(c, before)
			redistest.Eventually(t, "another node takes the key", func() bool {
				after := c.Owner(key)
				return after != before && c.Nodes[after].Say("SET "+key+" value") == "+OK\r\n"
			})
			if name == "killed" {
				c.Nodes[before].Start()
			}
			redistest.Eventually(t, "the old one is a replica", func() bool { return !c.Nodes[before].IsPrimary() })
		})
	}
}
