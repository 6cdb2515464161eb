//go:build slow

package operate

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// countedRequests is the number of requests of a scenario for each count.
const countedRequests = 2000

// TestCounts bounds what a request costs, by counts that do not depend on the speed of the machine:
// the bytes and objects that it allocates, and its system calls on sockets and files. Calls of the
// scheduler, such as futex and epoll_pwait, depend on the load and are not counted. The bounds are
// the counts of two busy cores, and about a twentieth more. If one breaks, find out why the request
// costs more before you raise it.
func TestCounts(t *testing.T) {
	strace := rig.Need(t, "strace")
	rig.LoadsMachine(t)
	ca := rig.NewTestCA(t)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, rig.SecureRules)
			return
		}
		_, _ = w.Write(make([]byte, 64))
	})
	secure := rig.StartSecureSite(t, ca, answer)
	plain := httptest.NewUnstartedServer(answer)
	everywhere, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = plain.Listener.Close()
	plain.Listener = everywhere
	plain.Start()
	t.Cleanup(plain.Close)
	_, port, _ := net.SplitHostPort(everywhere.Addr().String())

	for _, tt := range []struct {
		name                  string
		clients               int // each sends one request after another; those of HTTP/2 share a connection
		version               int // of HTTP, to the gateway
		url                   func(n int64) string
		bytes, objects, calls float64 // the most a request may take
	}{
		{"plain", 8, 1, func(int64) string { return "http://127.0.0.1:" + port + "/news/" }, 22_500, 215, 8.4},
		{"1000 hosts", 8, 1, func(n int64) string { return fmt.Sprintf("http://127.1.%d.%d:%s/news/", n%1000/250, n%250+1, port) }, 22_500, 216, 8.4},
		{"intercepted", 8, 1, func(int64) string { return secure.At("/news/") }, 23_000, 223, 8.4},
		{"HTTP/2 inside", 1, 2, func(int64) string { return secure.At("/news/") }, 24_500, 247, 8.4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(ca))
			client := g.SecureClient("AcmeBot/1.0", tt.version)
			send(t, client, tt.clients, tt.url) // the rules and the connections
			bytes, objects := g.Metric("go_memstats_alloc_bytes_total"), g.Metric("go_memstats_mallocs_total")
			send(t, client, tt.clients, tt.url)
			bytes, objects = g.Metric("go_memstats_alloc_bytes_total")-bytes, g.Metric("go_memstats_mallocs_total")-objects
			calls, table := traced(t, strace, g, func() { send(t, client, tt.clients, tt.url) })
			for _, c := range []struct {
				what       string
				got, bound float64
			}{
				{"bytes allocated", bytes / countedRequests, tt.bytes},
				{"objects allocated", objects / countedRequests, tt.objects},
				{"system calls", calls / countedRequests, tt.calls},
			} {
				t.Logf("%s per request: %.2f, at most %.2f", c.what, c.got, c.bound)
				if c.got > c.bound {
					t.Errorf("a request takes %.2f %s, want at most %.2f; system calls:\n%s", c.got, c.what, c.bound, table)
				}
				if c.got < c.bound/2 {
					t.Errorf("a request takes %.2f %s: lower the bound of %.2f", c.got, c.what, c.bound)
				}
			}
		})
	}
}

// send sends the requests of a scenario, and fails the test unless each gets the page.
func send(t *testing.T, client *http.Client, clients int, url func(n int64) string) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := next.Add(1); n <= countedRequests; n = next.Add(1) {
				if a, err := rig.TryGet(t.Context(), client, url(n)); err != nil || a.Status != http.StatusOK {
					t.Errorf("%s: status %d, error %v, %s", url(n), a.Status, err, a.Body)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// schedulers are the calls that strace does not trace, because they depend on the load of the
// machine.
const schedulers = "!futex,epoll_pwait,epoll_wait,nanosleep,sched_yield,madvise,getpid,tgkill,rt_sigreturn,rt_sigprocmask,sigaltstack,gettid,restart_syscall,mmap,clone,clone3"

var straceTotal = regexp.MustCompile(`(?m)^100\.00 +(\d+) .*total$`)

// traced counts the system calls of a gateway while do runs. It also returns strace's table.
func traced(t *testing.T, strace string, g *rig.Gateway, do func()) (calls float64, table string) {
	t.Helper()
	var out bytes.Buffer
	attached := &notice{text: " attached", seen: make(chan struct{}), to: &out}
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-c", "-U", "time,calls,errors,name", "-e", "trace="+schedulers, "-p", strconv.Itoa(g.Cmd.Process.Pid))
	cmd.Stderr = attached
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-attached.seen:
	case <-ended:
		rig.Missing(t, "the right to trace a process (strace: "+strings.TrimSpace(out.String())+")")
	}
	do()
	_ = cmd.Process.Signal(syscall.SIGINT)
	<-ended
	found := straceTotal.FindStringSubmatch(out.String())
	if found == nil {
		t.Fatalf("strace printed no total: %s", out.String())
	}
	calls, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return calls, out.String()
}

// notice is a writer that closes seen when the text has been written.
type notice struct {
	text string
	seen chan struct{}
	once sync.Once
	to   *bytes.Buffer
}

func (n *notice) Write(p []byte) (int, error) {
	n.to.Write(p)
	if strings.Contains(n.to.String(), n.text) {
		n.once.Do(func() { close(n.seen) })
	}
	return len(p), nil
}
