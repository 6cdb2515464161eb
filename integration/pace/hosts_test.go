//go:build slow

package pace

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestPaceManyHosts requests one page of each of many hosts and measures the cost of their clocks:
// memory, and processor time when no requests come. CRAWLGATE_PACE_HOSTS sets their number;
// pace/RESULTS.md has the figures for 100,000.
func TestPaceManyHosts(t *testing.T) {
	rig.LoadsMachine(t)
	hosts, quiet := 5_000, time.Second
	if text := os.Getenv("CRAWLGATE_PACE_HOSTS"); text != "" {
		var err error
		if hosts, err = strconv.Atoi(text); err != nil || hosts > 1<<22 {
			t.Fatalf("CRAWLGATE_PACE_HOSTS: %q, %v", text, err)
		}
		quiet = 5 * time.Second // measured, but without a bound
	}
	port, pages := startEverywhere(t)
	g := rig.New(t, rig.Config{Engine: "store none\npace {\nrate 1/10s\nburst 1\nwait 0s\n}"})
	visit := func(i int) string {
		return fmt.Sprintf("http://127.%d.%d.%d:%s/", 1+i>>16, i>>8&0xff, i&0xff, port)
	}
	if a := g.MustFetch("Tester/1.0", visit(0)); a.Status != http.StatusOK {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	before, began := g.Metric("go_memstats_heap_inuse_bytes"), time.Now()
	client := g.Client("Tester/1.0")
	var next atomic.Int64
	var crawl sync.WaitGroup
	for range 32 {
		crawl.Go(func() {
			for i := next.Add(1); i < int64(hosts); i = next.Add(1) {
				if a, err := rig.TryGet(t.Context(), client, visit(int(i))); err != nil || a.Status != http.StatusOK {
					t.Errorf("%s: status %d, error %v", visit(int(i)), a.Status, err)
				}
			}
		})
	}
	crawl.Wait()
	took := time.Since(began)
	if n := pages.Load(); n != int64(hosts) {
		t.Errorf("%d pages were requested, want %d", n, hosts)
	}
	after, peak := g.Metric("go_memstats_heap_inuse_bytes"), g.Usage().PeakRSS
	used := g.Usage().Cpu
	time.Sleep(quiet)
	used = g.Usage().Cpu - used
	t.Logf("%d hosts in %v, %.0f bytes of heap each with their records, %d MiB RSS at most, %v of processor time in %v of quiet",
		hosts, took, (after-before)/float64(hosts), peak>>20, used, quiet)
	if peak > 2<<30 {
		t.Errorf("%d MiB of memory for %d hosts, want at most 2 GiB", peak>>20, hosts)
	}
}

// startEverywhere serves a page and no robots.txt on one port of every loopback address.
func startEverywhere(t *testing.T) (port string, pages *atomic.Int64) {
	t.Helper()
	pages = new(atomic.Int64)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: rig.Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err != nil || !net.ParseIP(host).IsLoopback() || r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		pages.Add(1)
	})}
	server.SetKeepAlivesEnabled(false)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, pages
}
