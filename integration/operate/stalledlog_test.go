//go:build slow

package operate

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// collector reads the lines of a log when it is told to.
type collector struct {
	output string // the output option of its log
	stdout string // standard output of the process, or ""
	lines  func() io.Reader
}

// netCollector listens but does not read.
func netCollector(t *testing.T) collector {
	t.Helper()
	small := func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 256<<10) })
	}
	l, err := (&net.ListenConfig{Control: small}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conns := make(chan net.Conn, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			conns <- conn
		}
	}()
	return collector{output: "net " + l.Addr().String(), lines: func() io.Reader { return <-conns }}
}

// pipeCollector returns a pipe for the standard output that is full after three lines.
func pipeCollector(t *testing.T) collector {
	t.Helper()
	name := filepath.Join(rig.TempDir(t), "stdout")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close() })
	const setPipeSize = 1031 // F_SETPIPE_SZ of fcntl(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, pipe.Fd(), setPipeSize, 4096); errno != 0 {
		t.Fatal(errno)
	}
	return collector{output: "stdout", stdout: name, lines: func() io.Reader { return pipe }}
}

// config returns a configuration with a second access log, for the collector.
func (c collector) config(engine string) rig.Config {
	return rig.Config{
		Engine: rig.PaceOff + "\n" + engine, Stdout: c.stdout,
		Global: "log collected {\noutput " + c.output + "\ninclude http.log.access\n}",
	}
}

// stalls requests pages with short timeouts until one is refused for the log. The first requests
// fill the buffers between the gateway and the collector.
func stalls(t *testing.T, g *rig.Gateway, site *testorigin.Site) {
	t.Helper()
	client := g.Client("Tester/1.0")
	ask := func() (rig.Answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		return rig.TryGet(ctx, client, site.URL(rig.OpenPage+"?"+strings.Repeat("x", 15000)))
	}
	for deadline := time.Now().Add(rig.Patience); ; {
		if a, err := ask(); err == nil && refusedForLog(a) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the log did not stall")
		}
	}
}

func refusedForLog(a rig.Answer) bool {
	return a.Status == http.StatusServiceUnavailable && strings.Contains(a.Header.Get("Crawlgate-Decision"), "reason=log_unavailable")
}

// lostLines is the part of a line that reports lost lines before it.
type lostLines struct {
	Lost  int64   `json:"lost"`
	Since float64 `json:"lost_since"`
}

// TestStalledLog checks that requests are refused while an access log accepts no lines, that the
// gateway reports it, and that everything else works. When the log continues, so does the gateway,
// and a line has the number of lost lines.
func TestStalledLog(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) collector{"net": netCollector, "stdout": pipeCollector} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			g := rig.New(t, c.config(""))
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			stalls(t, g, site)
			if a := g.Own("/health"); a.Status != http.StatusOK {
				t.Errorf("/health: status %d, want 200", a.Status)
			}
			a, err := g.Dial().Ask(http.MethodConnect, "CONNECT "+rig.HostOf(site.URL("/"))+" HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n")
			if err != nil || !refusedForLog(a) {
				t.Errorf("CONNECT: status %d, error %v, want a refusal for the log", a.Status, err)
			}
			if up := g.Metric("crawlgate_log_up"); up != 0 {
				t.Errorf("crawlgate_log_up is %v, want 0", up)
			}
			rig.Eventually(t, "the process log to say so", func() bool { return strings.Contains(g.Stderr.String(), "an access log takes no lines") })

			lines := bufio.NewScanner(c.lines())
			lines.Buffer(nil, 1<<20)
			told := make(chan lostLines, 1)
			go func() {
				for lines.Scan() {
					var line struct{ Robots lostLines }
					if json.Unmarshal(lines.Bytes(), &line) == nil && line.Robots.Lost > 0 {
						told <- line.Robots
					}
				}
			}()
			rig.Eventually(t, "the log to go on", func() bool { return g.Metric("crawlgate_log_up") == 1 })
			if a := g.MustFetch("Tester/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
				t.Errorf("afterwards: status %d, want 200", a.Status)
			}
			var lost float64
			select {
			case line := <-told:
				if lost = g.Metric("crawlgate_log_lost_total"); float64(line.Lost) != lost {
					t.Errorf("the line has %d lost lines, the metric %v", line.Lost, lost)
				}
				if time.Since(time.Unix(int64(line.Since), 0)) > time.Minute {
					t.Errorf("lines were lost since %v, want within the last minute", line.Since)
				}
			case <-time.After(rig.Patience):
				t.Error("no line reports the lost lines")
			}
			rig.Eventually(t, "the process log to say so", func() bool { return strings.Contains(g.Stderr.String(), "the access log takes lines again") })
			g.Stop()
			r := rig.Audit(t, "--store", g.Store(), g.AccessLog())
			if r.Status != 2 || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], fmt.Sprintf("%v lines are missing, because it took none from", lost)) {
				t.Errorf("audit: status %d, errors %q", r.Status, r.Errors)
			}
		})
	}
}

// TestStalledLogReleases checks that a client whose line is being written when the log stalls gets
// the rest of its answer and an end, over both versions of HTTP. Over HTTP/1.1 the answer is
// complete if its length is known.
func TestStalledLogReleases(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	config := pipeCollector(t).config("")
	config.Egress = "trust_ca " + rig.CAFile(t, server)
	g := rig.New(t, config)
	plain, secure := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	authority, proxy := g.Authority(), &url.URL{Scheme: "http", Host: g.Addr} // before the log stalls
	var asking sync.WaitGroup
	for range 3 {
		for version, site := range []*testorigin.Site{plain, secure, secure} {
			client := g.ClientOf("Tester/1.0", version, proxy, &tls.Config{RootCAs: authority})
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				began := time.Now()
				a, err := rig.TryGet(ctx, client, site.URL(rig.OpenPage+"?"+strings.Repeat("x", 15000)))
				if took := time.Since(began); took > 15*time.Second || site == plain && (err != nil || a.Status != http.StatusOK && !refusedForLog(a)) {
					t.Errorf("HTTP/%d of %s: status %d, error %.100v, after %v", version, site.Origin(), a.Status, err, took)
				}
			})
		}
	}
	asking.Wait()
	if a := g.MustFetch("Tester/1.0", plain.URL(rig.OpenPage)); !refusedForLog(a) {
		t.Errorf("afterwards: status %d, want a refusal for the log", a.Status)
	}
}

// TestStalledLogServes checks that with `unlogged serve` requests pass, the first ones late, and
// count as lost.
func TestStalledLogServes(t *testing.T) {
	t.Parallel()
	g := rig.New(t, pipeCollector(t).config("unlogged serve"))
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, _ = rig.TryGet(ctx, g.Client("Tester/1.0"), site.URL(rig.OpenPage+"?"+strings.Repeat("x", 8000)))
		cancel()
	}
	for i := range 3 {
		began := time.Now()
		if a := g.MustFetch("Tester/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusOK {
			t.Fatalf("status %d, want 200: %s", a.Status, a.Body)
		}
		if took := time.Since(began); took > 10*time.Second || i > 0 && took > 3*time.Second {
			t.Errorf("request %d took %v", i, took)
		}
	}
	if lost := g.Metric("crawlgate_log_lost_total"); lost < 3 {
		t.Errorf("%v lost lines, want at least 3", lost)
	}
}

// TestStopWithStalledLog checks that SIGTERM ends the process within the grace period, or within 10
// s without one, whichever of its logs stalls.
func TestStopWithStalledLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, global string
		process      bool // the process log stalls, not the access log
		limit        time.Duration
	}{
		{"access log, grace period", "grace_period 2s", false, 2 * time.Second},
		{"access log, none", "", false, 10 * time.Second},
		{"process log, grace period", "grace_period 2s", true, 2 * time.Second},
		{"process log, none", "", true, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := pipeCollector(t)
			config := c.config("")
			if tt.process {
				config.Global = "log default {\noutput stdout\n}"
			}
			config.Global += "\n" + tt.global
			g := rig.New(t, config)
			if tt.process {
				rig.Eventually(t, "the log of the process to stall", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := g.TryAdmin(ctx, "/config/")
					return err != nil
				})
			} else {
				stalls(t, g, testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{}))
			}
			began := time.Now()
			if err := g.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case <-g.Exited:
			case <-time.After(tt.limit + 5*time.Second):
				t.Errorf("the process still runs after %v", time.Since(began))
			}
		})
	}
}

// TestStopWithStalledLogInGrace checks that a request under way has its grace period even if the
// log stalls.
func TestStopWithStalledLogInGrace(t *testing.T) {
	t.Parallel()
	began, finish := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != rig.OpenPage {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "begun, ")
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-finish
		_, _ = io.WriteString(w, "finished")
	}))
	defer slow.Close()
	config := pipeCollector(t).config("")
	config.Global += "\ngrace_period 9s"
	g := rig.New(t, config)
	answers := make(chan string, 1)
	go func() {
		a, err := rig.TryGet(t.Context(), g.Client("Tester/1.0"), slow.URL+rig.OpenPage)
		answers <- fmt.Sprint(a.Body, err)
	}()
	<-began
	stalls(t, g, testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{}))
	if err := g.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rig.Pause(t.Context(), time.Second)
	close(finish)
	if got := <-answers; got != "begun, finished<nil>" {
		t.Errorf("the client got %q, want the whole answer", got)
	}
}
