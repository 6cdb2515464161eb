package egress

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
)

// TestForwardFlatMemory checks that live memory does not grow while 64 MiB pass, in both directions
// and to a client or origin that has stopped reading. It does not run in parallel with other tests,
// because it would measure their memory.
func TestForwardFlatMemory(t *testing.T) {
	const size, step, bound = 64 << 20, 16 << 20, 6 << 20
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			for n := int64(0); n < size; {
				m, err := io.CopyN(io.Discard, r.Body, step)
				if n += m; err != nil {
					t.Error(err)
					return
				}
				<-steps
			}
			return
		}
		io.CopyN(w, endless{}, size)
	})
	for _, p := range pairs {
		g, c := p.start(t, h)
		base := heap()
		check := func(what string, n int) {
			now := heap()
			for range 3 { // ending goroutines may still hold memory the first time
				now = min(now, heap())
			}
			if now > base+bound {
				t.Errorf("%v %s: live memory has grown by %d KiB after %d MiB", p, what, (now-base)>>10, n>>20)
			}
		}
		resp := send(t, c, request(t, t.Context(), "GET", g.URL, nil))
		for n := step; n <= size; n += step {
			if _, err := io.CopyN(io.Discard, resp.Body, step); err != nil {
				t.Fatal(err)
			}
			check("down", n)
		}
		resp.Body.Close()
		go func() {
			for n := step; n <= size; n += step {
				check("up", n)
				steps <- struct{}{}
			}
		}()
		r := request(t, t.Context(), "POST", g.URL, io.LimitReader(endless{}, size))
		r.ContentLength = size
		if resp := send(t, c, r); resp.StatusCode != http.StatusOK {
			t.Errorf("%v: %s", p, resp.Status)
		}
		<-g.results
		if res := <-g.results; res.Err != nil {
			t.Errorf("%v: %+v", p, res.Err)
		}
	}
}

// steps makes the origin of TestForwardFlatMemory read the next part of a body.
var steps = make(chan struct{})

// BenchmarkIdleTunnels measures the memory of a tunnel that has been used and is now silent. It
// includes the client's end, which is in the same process, and the stacks.
func BenchmarkIdleTunnels(b *testing.B) {
	const tunnels = 500
	origin := rawOrigin(b, sayEcho)
	tr := newTestTransport(b, TransportConfig{})
	for b.Loop() {
		gw, done := startConnect(b, "h1", func(r *http.Request, tunnel *Tunnel) {
			up, err := tr.DialTunnel(r.Context(), "127.0.0.1", portOf(b, origin))
			if err != nil {
				b.Error(err)
				return
			}
			tunnel.Relay(r.Context(), up)
		})
		before := residentSet()
		conns := make([]net.Conn, 0, tunnels)
		for range tunnels {
			_, c := connect(b, gw, "site:443")
			c.Write(make([]byte, 5000))
			conns = append(conns, &duplex{c})
		}
		b.ReportMetric(float64(residentSet()-before)/tunnels, "B/tunnel")
		for _, c := range conns {
			c.Close()
			<-done
		}
	}
}

func residentSet() uint64 {
	heap()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}
