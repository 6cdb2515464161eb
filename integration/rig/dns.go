package rig

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// lastNameServer counts the addresses of name servers.
var lastNameServer atomic.Uint32

// FakeDNS is a name server with its own names. A gateway that runs under its command uses only this
// server, with the search list "test" and the given hosts file. It uses a mount namespace and
// port 53, so it needs root on Linux.
type FakeDNS struct {
	Command []string            // for Config.Wrap
	names   map[string][]string // "*" for all others

	mu    sync.Mutex
	asked []string
	texts map[string]string // TXT records
}

// Publish sets the TXT record of a name.
func (d *FakeDNS) Publish(name, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.texts[name] = text
}

// StartDNS starts a name server, with a hosts file and names; see [FakeDNS].
func StartDNS(t *testing.T, hosts string, names map[string][]string) *FakeDNS {
	t.Helper()
	unshare := Need(t, "unshare")
	d := &FakeDNS{names: names, texts: make(map[string]string)}
	var addr string
	var conn net.PacketConn
	err := error(syscall.EADDRINUSE)
	for errors.Is(err, syscall.EADDRINUSE) && lastNameServer.Load() < 250 { // used by the tests of another checkout
		addr = fmt.Sprintf("127.53.0.%d", lastNameServer.Add(1))
		conn, err = net.ListenPacket("udp", addr+":53")
	}
	if err == nil {
		err = exec.CommandContext(t.Context(), unshare, "--mount", "true").Run()
	}
	if err != nil {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			t.Fatalf("a name server for the test is required: %v", err)
		}
		t.Skipf("no name server for the test: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve(conn)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	dir := TempDir(t)
	files := []string{filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")}
	for i, text := range []string{"search test\nnameserver " + addr + "\n", "127.0.0.1 localhost\n" + hosts} {
		if err := os.WriteFile(files[i], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/hosts && shift && exec "$@"`
	d.Command = append([]string{unshare, "--mount", "sh", "-c", script}, files...)
	return d
}

// serve answers until the connection is closed.
func (d *FakeDNS) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
			continue
		}
		if answer, err := d.answer(m); err == nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

func (d *FakeDNS) answer(m dnsmessage.Message) ([]byte, error) {
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	d.mu.Lock()
	d.asked = append(d.asked, name)
	text, published := d.texts[strings.TrimSuffix(name, ".")]
	d.mu.Unlock()
	addrs, known := d.names[strings.TrimSuffix(name, ".")]
	if !known {
		addrs, known = d.names["*"]
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range addrs {
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		switch addr := netip.MustParseAddr(text); {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	if published && q.Type == dnsmessage.TypeTXT {
		reply.RCode = dnsmessage.RCodeSuccess
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.TXTResource{TXT: []string{text}}})
	}
	return reply.Pack()
}

// Questions returns the names in the questions so far, without repetitions.
func (d *FakeDNS) Questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Clone(d.asked)
	slices.Sort(names)
	return slices.Compact(names)
}
