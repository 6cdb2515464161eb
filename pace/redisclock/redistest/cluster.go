package redistest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Cluster is three primaries with a replica each. A primary that is silent for half a second is
// replaced by its replica, in about two seconds. Redis permits a second replacement only seconds
// later, so a test replaces each primary once.
type Cluster struct {
	// Nodes are the primaries at the start, in the order of their slots, and then their replicas in
	// the same order.
	Nodes []*Server

	tb testing.TB
}

const (
	primaries   = 3
	nodeTimeout = "500" // ms
)

// StartCluster starts a cluster, and stops it when the test ends. It skips the test like [Start].
func StartCluster(tb testing.TB, options ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for range 2 * primaries {
		bus := freePort(tb)
		c.Nodes = append(c.Nodes, Start(tb, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", nodeTimeout,
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
		}, options...)...))
	}
	for i, n := range c.Nodes {
		if i < primaries {
			c.must(n, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*Slots/primaries, (i+1)*Slots/primaries-1))
			c.must(n, fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1))
		}
		for _, other := range c.Nodes[:i] {
			c.must(n, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %s %s", other.port, other.options[3]))
		}
	}
	Eventually(tb, "all nodes have met", func() bool {
		for _, n := range c.Nodes {
			info := n.Say("CLUSTER INFO")
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
				return false
			}
		}
		return true
	})
	for i, n := range c.Nodes[primaries:] {
		Eventually(tb, "the replica knows its primary", func() bool {
			return n.Say("CLUSTER REPLICATE "+c.Nodes[i].id()) == "+OK\r\n"
		})
	}
	Eventually(tb, "all replicas follow", func() bool {
		for i, n := range c.Nodes[primaries:] {
			if !n.follows() || !strings.Contains(c.Nodes[0].Say("CLUSTER NODES"), "slave "+c.Nodes[i].id()) {
				return false
			}
		}
		return true
	})
	return c
}

// must runs a command on a node, and fails the test unless the answer is OK.
func (c *Cluster) must(n *Server, command string) {
	c.tb.Helper()
	if said := n.Say(command); said != "+OK\r\n" {
		c.tb.Fatalf("%s: %s", command, said)
	}
}

// id returns the name of a node in its cluster.
func (s *Server) id() string { return strings.Split(s.Say("CLUSTER MYID")+"\r\n", "\r\n")[1] }

// URL names all nodes.
func (c *Cluster) URL() string {
	others := make(url.Values)
	for _, n := range c.Nodes[1:] {
		others.Add("addr", n.Addr())
	}
	return c.Nodes[0].URL() + "?" + others.Encode()
}

// Slots is how many slots a cluster has.
const Slots = 1 << 14

// Slot returns the slot of a key by the specification of Redis Cluster: CRC-16/XMODEM of its hash
// tag, or of the whole key without one.
func Slot(key string) int {
	if _, tag, found := strings.Cut(key, "{"); found {
		if tag, _, found = strings.Cut(tag, "}"); found && tag != "" {
			key = tag
		}
	}
	crc := uint16(0)
	for _, c := range []byte(key) {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc % Slots)
}

// Owner returns the position in Nodes of the primary that has a key, such as "{acme}:fleet:orders".
func (c *Cluster) Owner(key string) int {
	c.tb.Helper()
	owner := -1
	Eventually(c.tb, "a primary has "+key, func() bool {
		for i, n := range c.Nodes {
			if n.cmd != nil && n.IsPrimary() && strings.HasPrefix(n.Say("EXISTS "+key), ":") {
				owner = i
			}
		}
		return owner >= 0
	})
	return owner
}

// IsPrimary reports whether the server accepts writes.
func (s *Server) IsPrimary() bool {
	return strings.Contains(s.Say("INFO replication"), "role:master")
}

// follows reports whether the server is a replica with all data of its primary.
func (s *Server) follows() bool {
	return strings.Contains(s.Say("INFO replication"), "master_link_status:up")
}

// failoverLimit is the time after which a replica gives up a requested failover: Redis's 5 s, and
// some more.
const failoverLimit = 6 * time.Second

// Failover makes the replica of a primary take its place, and the primary its replica. It waits for
// both.
func (c *Cluster) Failover(primary int) {
	c.tb.Helper()
	old := c.Nodes[primary]
	replica := c.Nodes[(primary+primaries)%len(c.Nodes)]
	Eventually(c.tb, "the replica has the data", replica.follows)
	var asked time.Time
	Eventually(c.tb, "they have changed places", func() bool {
		if !replica.IsPrimary() && time.Since(asked) > failoverLimit {
			c.must(replica, "CLUSTER FAILOVER")
			asked = time.Now()
		}
		return replica.IsPrimary() && !old.IsPrimary()
	})
}

// TakeOver makes the replica of a primary take its place without the consent of other nodes.
func (c *Cluster) TakeOver(primary int) {
	c.tb.Helper()
	replica := c.Nodes[(primary+primaries)%len(c.Nodes)]
	c.must(replica, "CLUSTER FAILOVER TAKEOVER")
	Eventually(c.tb, "it has taken over", replica.IsPrimary)
}

// Move moves the slot of a key to another primary and returns that primary. It calls during before
// the keys move. Until then the old primary answers ASK for keys that it lacks, and afterwards
// MOVED.
func (c *Cluster) Move(key string, during func()) (to *Server) {
	c.tb.Helper()
	owner, slot := c.Owner(key), fmt.Sprintf("CLUSTER SETSLOT %d ", Slot(key))
	from, to := c.Nodes[owner], c.Nodes[(owner+1)%primaries]
	c.must(to, slot+"IMPORTING "+from.id())
	c.must(from, slot+"MIGRATING "+to.id())
	during()
	keys := strings.Fields(from.Say(fmt.Sprintf("CLUSTER GETKEYSINSLOT %d 1000", Slot(key))))
	keys = slices.DeleteFunc(keys, func(line string) bool { return strings.ContainsAny(line[:1], "*$") })
	c.must(from, fmt.Sprintf(`MIGRATE 127.0.0.1 %s "" 0 5000 KEYS %s`, to.port, strings.Join(keys, " ")))
	for _, n := range []*Server{to, from} {
		c.must(n, slot+"NODE "+to.id())
	}
	return to
}
