package link

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// name is a name of Redis whose address changes: each new connection is passed on to the server
// that the name refers to at that time.
type name struct {
	net.Listener
	mu   sync.Mutex
	to   string
	mute []*atomic.Bool // by connection: whether everything that it sends is dropped
}

func named(t *testing.T, to string) *name {
	t.Helper()
	return listening(t, "127.0.0.1:0", to)
}

// listening returns a name at an address.
func listening(t *testing.T, at, to string) *name {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	n := &name{Listener: l, to: to}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { n.pass(in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		tasks.Wait()
	})
	return n
}

func (n *name) pass(in net.Conn) {
	defer func() { _ = in.Close() }()
	mute := new(atomic.Bool)
	n.mu.Lock()
	to := n.to
	n.mute = append(n.mute, mute)
	n.mu.Unlock()
	if to == loading {
		answerLoading(in)
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	go func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	}()
	for part := make([]byte, 64<<10); ; {
		got, err := in.Read(part)
		if err == nil && !mute.Load() {
			_, err = out.Write(part[:got])
		}
		if err != nil {
			return
		}
	}
}

// becomes makes the name refer to another server. Existing connections stay open; if half open,
// their packets are lost.
func (n *name) becomes(to string, halfOpen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = to
	for _, mute := range n.mute {
		mute.Store(halfOpen)
	}
}

// loading is the state of a server that never finishes loading its data.
const loading = "loading"

func answerLoading(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		for range 2 * words {
			if _, err = r.ReadString('\n'); err != nil {
				return
			}
		}
		if _, err = io.WriteString(c, "-LOADING Redis is loading the dataset in memory\r\n"); err != nil {
			return
		}
	}
}

func address(s *redistest.Server) string { return strings.TrimPrefix(s.URL(), "redis://") }

// beats is a link that counts its heartbeats. The count is the test's clock, at 0.5 s per
// heartbeat: load delays heartbeats but does not add any.
type beats struct {
	*Link
	n atomic.Int64
}

func beating(t *testing.T, url string) *beats {
	t.Helper()
	b := &beats{Link: open(t, Config{URL: url})}
	b.Announce(func() string {
		b.n.Add(1)
		return "note"
	})
	redistest.Eventually(t, "the link to be up", func() bool { return b.State().Up && b.State().Gateways == 1 })
	return b
}

// returns waits until the link is up again after an event, and until another client confirms that
// the event is done. It checks that this took few heartbeats: each is sent within 0.5 s of the
// previous one or retried at once.
func (b *beats) returns(t *testing.T, before int64, done func() bool) {
	t.Helper()
	after := int64(0)
	redistest.Eventually(t, "the link to be up again", func() bool {
		after = b.n.Load()
		return done() && b.State().Up
	})
	if took := after - before; took > 6 {
		t.Errorf("the link is back after %d heartbeats, want 6 at most", took)
	}
	if err := b.Client().Do(t.Context(), b.Client().B().Set().Key("{crawlgate}:x").Value("1").Build()).Error(); err != nil {
		t.Errorf("a write after the link is up again: %v", err)
	}
}

// hasGateway reports whether a server has the heartbeat.
func hasGateway(s *redistest.Server) func() bool {
	return func() bool { return s.Say("ZCARD {crawlgate}:fleet:gateways") == ":1\r\n" }
}

func signal(t *testing.T, s *redistest.Server, sig syscall.Signal) {
	t.Helper()
	_, id, _ := strings.Cut(s.Say("INFO server"), "process_id:")
	id, _, _ = strings.Cut(id, "\r\n")
	pid, err := strconv.Atoi(id)
	if err == nil {
		err = syscall.Kill(pid, sig)
	}
	if err != nil {
		t.Fatal(err)
	}
	if sig == syscall.SIGSTOP {
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	}
}

// TestAFailoverBehindOneName checks that a link finds the new primary behind one name, as in
// managed Redis, in all ways in which the old one may be lost, without a reload.
func TestAFailoverBehindOneName(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(t *testing.T, n *name, old, next *redistest.Server){
		"the old primary is a replica now": func(_ *testing.T, n *name, old, next *redistest.Server) {
			host, port, _ := net.SplitHostPort(address(next))
			old.Say("REPLICAOF " + host + " " + port)
			n.becomes(address(next), false)
		},
		"it is dead": func(_ *testing.T, n *name, old, next *redistest.Server) {
			n.becomes(address(next), false)
			old.Kill()
		},
		"it is stopped": func(t *testing.T, n *name, old, next *redistest.Server) {
			t.Helper()
			n.becomes(address(next), false)
			signal(t, old, syscall.SIGSTOP)
		},
		"packets vanish": func(_ *testing.T, n *name, _, next *redistest.Server) { n.becomes(address(next), true) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			old, next := redistest.Start(t), redistest.Start(t)
			n := named(t, address(old))
			b := beating(t, "redis://"+n.Addr().String())
			before := b.n.Load()
			lose(t, n, old, next)
			b.returns(t, before, hasGateway(next))
		})
	}
}

// TestAServerThatGoesOnLoading checks that a server that answers each heartbeat with an error does
// not replace a connection that may recover, and that another server does.
func TestAServerThatGoesOnLoading(t *testing.T) {
	t.Parallel()
	next := redistest.Start(t)
	n := named(t, address(next))
	l := open(t, Config{URL: "redis://" + n.Addr().String(), Heartbeat: 50 * time.Millisecond})
	l.ShareClocks(1)
	redistest.Eventually(t, "the link to be up", func() bool { return l.State().Up })
	n.becomes(loading, true)
	stale := l.Client()
	redistest.Eventually(t, "other clients to be tried", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !l.State().Up && len(n.mute) > 4
	})
	if got := l.Client(); got != stale {
		t.Error("a server that is loading has replaced the connection")
	}
	n.becomes(address(next), true)
	redistest.Eventually(t, "the link to be up again", func() bool { return l.State().Up })
}

// TestALinkThatWritesNothingLearnsOfAReplica checks that a link notices that its server became a
// replica when another client reports a failed write.
func TestALinkThatWritesNothingLearnsOfAReplica(t *testing.T) {
	t.Parallel()
	old, next := redistest.Start(t), redistest.Start(t)
	n := named(t, address(old))
	l := open(t, Config{URL: "redis://" + n.Addr().String(), Heartbeat: 20 * time.Millisecond})
	redistest.Eventually(t, "the link to be up", func() bool { return l.State().Up })
	host, port, _ := net.SplitHostPort(address(next))
	old.Say("REPLICAOF " + host + " " + port)
	n.becomes(address(next), false)
	redistest.Eventually(t, "a write to succeed", func() bool {
		err := l.Client().Do(t.Context(), l.Client().B().Set().Key("x").Value("1").Build()).Error()
		if err != nil {
			l.Fail(err)
		}
		return err == nil
	})
	if next.Say("GET x") != "$1\r\n1\r\n" {
		t.Error("the new primary does not have the write")
	}
}

// TestAClientThatWasReplacedSaysNothing checks that an error of a replaced client does not change
// the state of the present one.
func TestAClientThatWasReplacedSaysNothing(t *testing.T) {
	t.Parallel()
	b := beating(t, redistest.Start(t).URL())
	b.Fail(fmt.Errorf("a call: %w", rueidis.ErrClosing))
	if !b.State().Up {
		t.Errorf("state = %+v, want it up", b.State())
	}
}

// node is a redis-server with arguments of its own, for the tests of Sentinel and Cluster.
func node(t *testing.T, args func(port string) []string) (address string, kill func()) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for {
		port := strconv.Itoa(20000 + rand.IntN(12000)) // the cluster also uses the port 10000 above
		cmd := exec.Command("redis-server", args(port)...)
		cmd.Dir = t.TempDir()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill = sync.OnceFunc(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		t.Cleanup(kill)
		ours := "process_id:" + strconv.Itoa(cmd.Process.Pid) + "\r\n"
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if strings.Contains(ask("127.0.0.1:"+port, "INFO server"), ours) {
				return "127.0.0.1:" + port, kill
			}
		}
		kill()
	}
}

// ask sends one inline command and returns the beginning of the answer.
func ask(to, command string) string {
	c, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	answer := make([]byte, 1<<16)
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return ""
	}
	n, _ := c.Read(answer)
	return string(answer[:n])
}

func plain(port string, more ...string) []string {
	return append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, more...)
}

// TestSentinel checks that the link follows the primary that the sentinels name, whether the old
// one is demoted or stopped.
func TestSentinel(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t)
	host, port, _ := net.SplitHostPort(address(old))
	next, _ := node(t, func(own string) []string { return plain(own, "--replicaof", host, port) })
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte("sentinel monitor acme "+host+" "+port+" 1\nsentinel down-after-milliseconds acme 500\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel, _ := node(t, func(own string) []string { return []string{file, "--sentinel", "--port", own, "--bind", "127.0.0.1"} })
	redistest.Eventually(t, "the sentinel to know the replica", func() bool {
		return strings.Contains(ask(sentinel, "INFO sentinel"), "slaves=1") && strings.Contains(ask(next, "INFO replication"), "master_link_status:up")
	})
	b := beating(t, "redis://"+sentinel+"?master_set=acme")
	redistest.Eventually(t, "the failover to begin", func() bool { return ask(sentinel, "SENTINEL FAILOVER acme") == "+OK\r\n" })
	isPrimary := func(address string) bool { return strings.Contains(ask(address, "INFO replication"), "role:master") }
	redistest.Eventually(t, "the replica to become primary", func() bool { return isPrimary(next) })
	b.returns(t, b.n.Load(), func() bool {
		c := b.Client()
		return c.Do(t.Context(), c.B().Set().Key("y").Value("1").Build()).Error() == nil && ask(next, "GET y") == "$1\r\n1\r\n"
	})
}

// TestCluster checks that the link follows the replica that is elected when a primary dies.
func TestCluster(t *testing.T) {
	t.Parallel()
	var nodes []string
	var kill []func()
	for range 4 {
		address, end := node(t, func(own string) []string {
			return plain(own, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0")
		})
		nodes, kill = append(nodes, address), append(kill, end)
	}
	for i, slots := range []string{"0 5460", "5461 10922", "10923 16383"} {
		ask(nodes[i], "CLUSTER ADDSLOTSRANGE "+slots)
	}
	for _, other := range nodes[1:] {
		host, port, _ := net.SplitHostPort(other)
		ask(nodes[0], "CLUSTER MEET "+host+" "+port)
	}
	answer := ask(nodes[0], "CLUSTER KEYSLOT {crawlgate}")
	slot, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(answer, ":")))
	holder := min(slot/5461, 2)
	redistest.Eventually(t, "all nodes to know each other", func() bool {
		for _, n := range nodes {
			if !strings.Contains(ask(n, "CLUSTER INFO"), "cluster_state:ok") || !strings.Contains(ask(n, "CLUSTER INFO"), "cluster_known_nodes:4") {
				return false
			}
		}
		_, id, _ := strings.Cut(ask(nodes[holder], "CLUSTER MYID"), "\r\n")
		return ask(nodes[3], "CLUSTER REPLICATE "+strings.TrimSpace(id)) == "+OK\r\n"
	})
	redistest.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(ask(nodes[3], "INFO replication"), "master_link_status:up")
	})
	b := beating(t, "redis://"+nodes[(holder+1)%3]+"?addr="+nodes[holder])
	kill[holder]()
	redistest.Eventually(t, "the replica to be elected", func() bool { return strings.Contains(ask(nodes[3], "ROLE"), "master") })
	b.returns(t, b.n.Load(), func() bool { return ask(nodes[3], "ZCARD {crawlgate}:fleet:gateways") == ":1\r\n" })
}
