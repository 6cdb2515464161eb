//go:build slow

package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// load reads examples/egress/crawlers.nft with the user and the gateway's address of this network.
func (w *wayOut) load() {
	w.t.Helper()
	text, err := os.ReadFile(testdocs.Path("examples", "egress", "crawlers.nft"))
	if err != nil {
		w.t.Fatal(err)
	}
	replace := []string{"{ crawler,", fmt.Sprintf("{ %d,", crawlerUser), "127.0.0.1 . 3128", w.proxy4 + " . 3128", "::1 . 3128", w.proxy6 + " . 3128"}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(text), replace[i]) {
			w.t.Fatalf("crawlers.nft lacks %q", replace[i])
		}
	}
	file := filepath.Join(w.dir, "crawlers.nft")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.routing.sh("nft -f " + file)
}

// quickly bounds the time of a client that fails at once. One that waits for an answer takes
// clientTimeout.
const (
	quickly       = 10 * time.Second
	clientTimeout = 20 * time.Second
)

// directly runs every client without the gateway, and returns those that got an answer, those that
// got none, and those that took long.
func (w *wayOut) directly(uid int) (open, shut, slow []string) {
	w.t.Helper()
	for _, c := range w.clients() {
		start := time.Now()
		if err := c.run(uid); err == nil {
			open = append(open, c.name)
		} else {
			shut = append(shut, fmt.Sprintf("%s: %v", c.name, err))
		}
		if time.Since(start) > quickly {
			slow = append(slow, c.name)
		}
	}
	return open, shut, slow
}

// closed checks that no client bypasses the gateway, that each fails at once, and that nothing
// arrives anywhere.
func (w *wayOut) closed(when string, uid int) {
	w.t.Helper()
	w.site.netns.sh("nft reset counters table inet seen")
	before, rejected := w.beside.met.Load(), w.routing.counter("crawlers", "rejected")
	open, _, slow := w.directly(uid)
	if len(open) > 0 || len(slow) > 0 {
		w.t.Errorf("%s, user %d: %q bypass the gateway; %q fail late", when, uid, open, slow)
	}
	if n := w.site.netns.counter("seen", "arrived"); n != 0 {
		w.t.Errorf("%s, user %d: %d packets of the crawler arrived at the site", when, uid, n)
	}
	if n := w.beside.met.Load() - before; n != 0 {
		w.t.Errorf("%s, user %d: other programs on the gateway's machine got %d connections of the crawler", when, uid, n)
	}
	if n := w.routing.counter("crawlers", "rejected") - rejected; n < len(w.clients()) {
		w.t.Errorf("%s, user %d: %d packets were counted as rejected, want at least %d", when, uid, n, len(w.clients()))
	}
}

// TestWayOut loads examples/egress/crawlers.nft in namespaces and checks that no packet of a
// crawler reaches a site except through the gateway, from any client. The same clients get their
// pages through it.
func TestWayOut(t *testing.T) {
	t.Parallel()
	needNetns(t, "ip", "nft", "curl", "wget")
	for name, build := range map[string]func(*testing.T) *wayOut{
		"a user, the gateway beside it":              wayOutOfUser,
		"a user, the gateway on another machine":     wayOutToRemote,
		"a network behind a router":                  wayOutByRouter,
		"a bridge of containers, the gateway beside": wayOutByBridge,
		"a bridge of containers and the gateway":     wayOutAtOneBridge,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			// Without the rules all clients bypass the gateway, so each of them can show that the
			// rules work.
			if _, shut, _ := w.directly(crawlerUser); len(shut) > 0 {
				t.Fatalf("without rules %q fail to bypass the gateway", shut)
			}
			if w.site.netns.counter("seen", "arrived") == 0 || w.beside.met.Load() == 0 {
				t.Fatal("without rules nothing arrived")
			}
			w.site.settled() // the rules would stop their last packets
			w.load()
			w.closed("with the rules", crawlerUser)
			if w.users {
				w.closed("with the rules", inheritedUser)
			}
			w.throughGateway()
			w.stopGateway()
			w.site.settled()
			w.closed("without the gateway", crawlerUser)
			if w.users && w.gateway != w.crawler { // the machine's other users are free
				if _, shut, _ := w.directly(otherUser); len(shut) > 0 {
					t.Errorf("another user fails: %q", shut)
				}
			}
		})
	}
}

// TestWayOutPage types the commands of docs/egress.md under "Check", for the site's addresses, and
// checks that the page shows the rules and networks of the example.
func TestWayOutPage(t *testing.T) {
	t.Parallel()
	needNetns(t, "ip", "nft", "curl", "bash")
	sections := testdocs.Sections(t, "egress.md")
	for heading, file := range map[string]string{"Virtual machine": "crawlers.nft", "Compose": "compose.yaml"} {
		text, err := os.ReadFile(testdocs.Path("examples", "egress", file))
		if err != nil {
			t.Fatal(err)
		}
		_, shown, _ := strings.Cut(sections[heading], "```")
		_, shown, _ = strings.Cut(shown, "\n")
		if shown, _, _ = strings.Cut(shown, "```"); shown == "" || !strings.Contains(string(text), "\n"+shown) {
			t.Errorf("%s lacks the lines of the page:\n%s", file, shown)
		}
	}
	_, section, _ := strings.Cut(sections["Check"], "```sh\n")
	section, script, _ := strings.Cut(section, "```")
	_, script, _ = strings.Cut(script, "```sh\n")
	script, _, _ = strings.Cut(script, "\n")
	lines := strings.Split(strings.TrimSpace(strings.NewReplacer("1.1.1.1", siteAddr4, "2606:4700:4700::1111", siteAddr6).Replace(section)), "\n")
	if len(lines) < 4 {
		t.Fatalf("the page has the lines %q, want at least 4", lines)
	}
	for name, build := range map[string]func(*testing.T) *wayOut{"by user": wayOutOfUser, "by interface": wayOutByBridge} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			for _, line := range lines {
				if out, err := w.types(line); err != nil {
					t.Errorf("without rules %s: %v %s", line, err, out)
				}
			}
			// The gateway's own script must agree.
			check := "export http_proxy=http://" + w.proxy4 + ":3128; " + strings.Replace(script, "GATEWAY", w.proxy4, 1) + " -s -- AcmeBot/1.0 http://" + siteAddr4 + "/open"
			if out, _ := w.types(check); !strings.Contains(out, "direct way: open") {
				t.Errorf("without rules check.sh prints %s, want an open direct way", out)
			}
			w.load()
			if out, _ := w.types(check); !strings.Contains(out, "direct way: closed to http://"+siteAddr4) || !strings.Contains(out, "ok     allowed: http://") {
				t.Errorf("with rules check.sh prints %s, want a closed direct way", out)
			}
			for _, line := range lines {
				start := time.Now()
				if out, err := w.types(line); err == nil || out == "" {
					t.Errorf("%s: error %v, output %q, want an error and a message", line, err, out)
				}
				if took := time.Since(start); took > quickly {
					t.Errorf("%s took %v, want at most %v", line, took, quickly)
				}
			}
			if out := w.routing.sh("nft list counter inet crawlers rejected"); strings.Contains(out, "packets 0 ") {
				t.Errorf("the rules counted no packet: %s", out)
			}
		})
	}
}

// types runs a line in a shell as the crawler.
func (w *wayOut) types(line string) (string, error) {
	w.t.Helper()
	out := new(rig.Tail)
	ctx, cancel := context.WithTimeout(w.t.Context(), clientTimeout)
	defer cancel()
	err := w.crawler.command(ctx, crawlerUser, nil, out, "sh", "-c", line)
	return out.String(), err
}

// TestWayOutReload loads the rules over and over while a crawler tries to get out. None of its
// packets may pass, as they would if the file deleted its table.
func TestWayOutReload(t *testing.T) {
	t.Parallel()
	needNetns(t, "ip", "nft", "curl")
	w := wayOutOfUser(t)
	w.load()
	w.site.netns.sh("nft reset counters table inet seen")
	var tries, passed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		done <- w.crawler.as(crawlerUser, func() error {
			conn, err := net.ListenPacket("udp4", ":0")
			if err != nil {
				return err
			}
			defer conn.Close()
			for site := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(siteAddr4 + ":443")); ctx.Err() == nil; tries.Add(1) {
				if _, err := conn.WriteTo([]byte("hello"), site); err == nil {
					passed.Add(1)
				}
			}
			return nil
		})
	}()
	for range 50 {
		seen := tries.Load()
		w.load()
		rig.Eventually(t, "the crawler to try again", func() bool { return tries.Load() > seen+100 })
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := w.site.netns.counter("seen", "arrived"); n != 0 || passed.Load() != 0 {
		t.Errorf("%d of %d tries passed, %d packets arrived", passed.Load(), tries.Load(), n)
	}
}

// TestWayOutOpenConnection checks that the rules stop a connection that was open before them.
func TestWayOutOpenConnection(t *testing.T) {
	t.Parallel()
	needNetns(t, "ip", "nft", "curl")
	w := wayOutOfUser(t)
	var conn net.Conn
	err := w.crawler.as(crawlerUser, func() (err error) {
		conn, err = net.DialTimeout("tcp", siteAddr4+":8888", quickly)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(clientTimeout))
	if err := echo(conn); err != nil {
		t.Fatalf("before the rules: %v", err)
	}
	w.load()
	w.site.netns.sh("nft reset counters table inet seen")
	if err := echo(conn); err == nil {
		t.Error("the connection still carries data under the rules")
	}
	if n := w.site.netns.counter("seen", "arrived"); n != 0 {
		t.Errorf("%d packets arrived, want 0", n)
	}
}

// TestWayOutExceptions checks the file's two sets for exceptions. The addresses in also4 are
// reachable, and a crawler may answer at the ports in served, but not send requests from them.
func TestWayOutExceptions(t *testing.T) {
	t.Parallel()
	needNetns(t, "ip", "nft", "curl")
	w := wayOutOfUser(t)
	w.load()
	dial := func(from, to string) error {
		return w.crawler.as(crawlerUser, func() error {
			d := net.Dialer{Timeout: quickly}
			if from != "" {
				d.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
			}
			conn, err := d.DialContext(t.Context(), "tcp", to)
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
	served := w.crawler.listen(crawlerUser, []int{9100}, nil, linkAddr4(1, 1))
	ask := func() error {
		return w.site.netns.as(0, func() error { return dialEcho("tcp", linkAddr4(1, 1)+":9100", time.Second) })
	}
	if err := dial("", "127.0.0.1:8888"); err == nil {
		t.Error("the crawler reaches another program of the machine")
	}
	if err := ask(); err == nil {
		t.Error("the crawler answers other machines")
	}
	w.crawler.sh("nft add element inet crawlers also4 '{ 127.0.0.1 . tcp . 8000-8999 }'; nft add element inet crawlers served '{ 9100 }'")
	if err := dial("", "127.0.0.1:8888"); err != nil {
		t.Errorf("an address in also4: %v", err)
	}
	if err := ask(); err != nil || served.met.Load() == 0 {
		t.Errorf("a port in served: %v", err)
	}
	served.close()
	if err := dial(linkAddr4(1, 1)+":9100", siteAddr4+":80"); err == nil {
		t.Error("the crawler bypasses the gateway from a port in served")
	}
}
