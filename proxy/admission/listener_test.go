package admission

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/engine"
)

// peer is a connection from an address.
type peer struct {
	net.Conn
	addr string
}

func (p peer) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.addr)) }

func TestSourceOf(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := engine.NetworkOf(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("NetworkOf(%s) = %s, want %s", addr, got, want)
		}
	}
	if got := engine.NetworkOf(netip.Addr{}); got.IsValid() {
		t.Errorf("the network of no address is %s", got)
	}
}

// Connections count once, from their first read to their end, however often they are closed. Then
// no state is left.
func TestConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	l := &Listener{limits: engine.Limits{Connections: 3, ConnectionsPerSource: 2}, logger: zap.NewNop()}
	open := func(addr string) (*boundedConn, net.Conn) {
		server, client := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		return &boundedConn{Conn: peer{server, addr}, bounds: l}, client
	}
	// enter begins to read, and returns the answer that the client gets.
	enter := func(addr string) (c *boundedConn, told string) {
		c, client := open(addr)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Read(make([]byte, 1))
		}()
		if _, err := client.Write([]byte("G")); err == nil {
			<-done
			return c, ""
		}
		<-done
		return c, "closed"
	}
	never, _ := open("192.0.2.1:1")
	_ = never.Close()
	if _, err := never.Read(make([]byte, 1)); err == nil {
		t.Error("Read of a closed connection succeeded")
	}
	var counted []*boundedConn
	for i, step := range []struct {
		addr string
		told string
	}{
		{"192.0.2.1:1", ""}, {"192.0.2.1:2", ""}, {"192.0.2.1:3", "closed"}, {"[2001:db8::1]:1", ""}, {"[2001:db8::2]:1", "closed"},
	} {
		c, told := enter(step.addr)
		if told != step.told {
			t.Errorf("step %d: the client got %q, want %q", i, told, step.told)
		}
		counted = append(counted, c)
	}
	for _, c := range counted {
		_ = c.Close()
		_ = c.Close()
	}
	if !clients.Enter(netip.Prefix{}, 1) {
		t.Error("a connection still counts at the end")
	}
	clients.Leave(netip.Prefix{})
	for _, c := range counted {
		if !clients.Enter(c.source, 1) {
			t.Errorf("a connection of %s still counts", c.source)
		}
		clients.Leave(c.source)
	}
}

// The answer to a connection above the limit must be valid HTTP.
func TestFullAnswer(t *testing.T) {
	t.Parallel()
	l := &Listener{logger: zap.NewNop()}
	server, client := net.Pipe()
	go func() { _, _ = (&boundedConn{Conn: server, bounds: l}).Read(nil) }()
	text, err := io.ReadAll(client)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 503 ") || !strings.HasSuffix(string(text), "\r\n\r\n"+fullBody) {
		t.Errorf("the answer is %[2]s, error %[1]v", err, text)
	}
}

// oneByte is a connection whose every read returns one byte and whose every write succeeds.
type oneByte struct{ peer }

func (oneByte) Read(p []byte) (int, error)  { return 1, nil }
func (oneByte) Write(p []byte) (int, error) { return len(p), nil }

// wake reads once from each of several connections of a source, and returns the time that the last
// one waited.
func wake(conns []*boundedConn) (longest time.Duration) {
	var group sync.WaitGroup
	began := time.Now()
	for _, c := range conns {
		group.Go(func() { _, _ = c.Read(make([]byte, 1)) })
	}
	group.Wait()
	return time.Since(began)
}

// A source with as many connections as it may have delays no other source. Its own slow requests
// cost it one turn each, however slowly their bytes arrive.
func TestTurnsOfSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Listener{limits: engine.Limits{Connections: 1 << 20, ConnectionsPerSource: 1 << 20}, logger: zap.NewNop()}
		open := func(n int, addr string) (conns []*boundedConn) {
			for range n {
				c := &boundedConn{Conn: oneByte{peer{addr: addr}}, bounds: l}
				c.source = engine.NetworkOf(netip.MustParseAddrPort(addr).Addr())
				c.begin.Do(func() {})
				conns = append(conns, c)
			}
			return conns
		}
		const many = 20_000
		least := many * time.Second / time.Duration(coldRateOfAll*runtime.GOMAXPROCS(0))
		time.Sleep(time.Minute)
		crowd, others := open(many, "192.0.2.1:1"), open(coldBurst, "192.0.2.2:1")
		done := make(chan time.Duration)
		go func() { done <- wake(crowd) }()
		time.Sleep(50 * time.Millisecond)
		if took := wake(others); took > 20*time.Millisecond {
			t.Errorf("another source waited %s, want at most 20ms", took)
		}
		if took := <-done; took < least {
			t.Errorf("%d connections began within %s, want at least %s", many, took, least)
		}
		for range 3 {
			time.Sleep(2 * coldAfter)
			if took := wake(crowd); took > 0 {
				t.Errorf("the rest of the requests waited %s, want no wait", took)
			}
		}
		for _, c := range crowd {
			_, _ = c.Write([]byte("an answer"))
		}
		if took := wake(crowd); took > 0 {
			t.Errorf("connections in use waited %s, want no wait", took)
		}
		time.Sleep(2 * coldAfter)
		if took := wake(crowd); took < least {
			t.Errorf("%d connections continued within %s, want at least %s", many, took, least)
		}
	})
}

func TestCount(t *testing.T) {
	t.Parallel()
	c := openCount{open: make(map[netip.Prefix]int)}
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/64")
	for i, step := range []struct {
		key   netip.Prefix
		leave bool
		limit int
		want  bool
	}{
		{key: a, limit: 0, want: false}, // zero denies
		{key: a, limit: 2, want: true},
		{key: a, limit: 2, want: true},
		{key: a, limit: 2, want: false},
		{key: b, limit: 1, want: true},
		{key: a, limit: 3, want: true}, // a reload raised it
		{key: a, limit: 1, want: false},
		{key: a, leave: true},
		{key: a, limit: 3, want: true},
		{key: b, leave: true},
		{key: b, limit: 1, want: true},
	} {
		if step.leave {
			c.Leave(step.key)
		} else if got := c.Enter(step.key, step.limit); got != step.want {
			t.Errorf("step %d: Enter = %v, want %v", i, got, step.want)
		}
	}
	if c.open[a] != 3 || c.open[b] != 1 {
		t.Errorf("the counts are %v", c.open)
	}
}

// No key remains, and the count never exceeds the limit.
func TestCountConcurrently(t *testing.T) {
	t.Parallel()
	var (
		c     = openCount{open: make(map[netip.Prefix]int)}
		all   sync.WaitGroup
		limit = 3
	)
	for i := range 64 {
		source := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 5)}), 32)
		all.Go(func() {
			for range 200 {
				if c.Enter(source, limit) {
					c.mu.Lock()
					if n := c.open[source]; n < 1 || n > limit {
						t.Errorf("%d connections are open, want 1 to %d", n, limit)
					}
					c.mu.Unlock()
					c.Leave(source)
				}
			}
		})
	}
	all.Wait()
	if len(c.open) > 0 {
		t.Errorf("the counts %v remain", c.open)
	}
}
