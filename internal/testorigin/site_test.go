package testorigin_test

import (
	"bufio"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func TestSiteStartsWithoutRobots(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	status, _ := mustGet(t, newTransport(t, server), site.URL("/robots.txt"))
	if history := site.History(); status != 404 || len(history) != 1 || history[0].Version != 1 || history[0].Meaning != testorigin.MeansAbsent {
		t.Errorf("status %d, history %+v, want 404 in force as version 1", status, history)
	}
}

func TestSitesAreHostsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, cfg := range []testorigin.Config{{}, {InMemory: true}} {
		server := testorigin.Start(t, cfg)
		hosts := make(map[string]bool)
		for range 300 {
			site := server.Site(t, testorigin.SiteConfig{})
			addr, ok := site.Origin().Addr()
			if !ok || !addr.IsLoopback() || hosts[addr.String()] {
				t.Fatalf("site %v does not have its own loopback address", site.Origin())
			}
			hosts[addr.String()] = true
		}
		if len(server.Sites()) != 300 {
			t.Errorf("Sites() has %d sites, want 300", len(server.Sites()))
		}
	}
}

func TestSiteByName(t *testing.T) {
	t.Parallel()
	for _, cfg := range []testorigin.Config{{}, {InMemory: true}} {
		server := testorigin.Start(t, cfg)
		named := server.Site(t, testorigin.SiteConfig{Scheme: "https", Host: "www.exämple.com", Port: 443})
		if got := named.Origin().String(); got != "https://www.xn--exmple-cua.com" {
			t.Errorf("Origin() = %q, want the name in ASCII", got)
		}
		transport := newTransport(t, server)
		mustGet(t, transport, named.URL("/x?y"))
		exchanges := named.PageExchanges()
		if len(exchanges) != 1 || exchanges[0].Host != "www.xn--exmple-cua.com" || exchanges[0].Target != "/x?y" {
			t.Errorf("recorded %+v", exchanges)
		}
		if _, err := server.AddSite(testorigin.SiteConfig{Scheme: "https", Host: "www.exämple.com", Port: 443}); err == nil {
			t.Error("AddSite accepts a second site with the same host and port")
		}
		var dnsError *net.DNSError
		if _, _, err := get(t.Context(), transport, "http://nobody.example/"); !errors.As(err, &dnsError) || !dnsError.IsNotFound {
			t.Errorf("an unknown name: %v, want a DNS error", err)
		}
	}
}

func TestBadSites(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	for _, cfg := range []testorigin.SiteConfig{{Scheme: "ftp"}, {Host: "a..b"}, {Host: "127.1"}} {
		if _, err := server.AddSite(cfg); err == nil {
			t.Errorf("AddSite(%+v) succeeded", cfg)
		}
	}
	mustPanic(t, "adding a site", func() { server.Site(recorder{t}, testorigin.SiteConfig{Scheme: "ftp"}) })
	plain := server.Site(t, testorigin.SiteConfig{})
	mustPanic(t, "needs an https site", func() { plain.SetRobots(testorigin.HandshakeAlert()) })
	mustPanic(t, "whole site", func() { plain.SetPath("/x", testorigin.Refuse()) })
	mustPanic(t, "whole site", func() { plain.SetPages(testorigin.HandshakeAlert()) })
	mustPanic(t, "whole site", func() { testorigin.Refuse().After(time.Second) })
	mustPanic(t, "unknown content coding", func() { testorigin.Encoded("lzw", rules) })
	mustPanic(t, "whole site", func() { testorigin.Informational(testorigin.Refuse(), 103) })
}

// TestSwapIsAtomic changes behaviours under load: every answer must belong to the version in its
// record, and versions must not decrease in the record.
func TestSwapIsAtomic(t *testing.T) {
	t.Parallel()
	const clients, swaps = 8, 200
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	text := func(version int) string { return fmt.Sprintf("# version %d\n", version) }
	site.SetRobots(testorigin.OK(text(2)))
	transport := newTransport(t, server)
	transport.MaxIdleConnsPerHost = clients

	var mu sync.Mutex
	answers := make(map[string]int)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, body, err := get(t.Context(), transport, site.URL("/robots.txt"))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answers[body]++
				mu.Unlock()
			}
		})
	}
	for version := 3; version < swaps; version++ {
		if got := site.SetRobots(testorigin.OK(text(version))); got != version {
			t.Errorf("SetRobots returned version %d, want %d", got, version)
		}
		mustGet(t, transport, site.URL("/robots.txt"))
	}
	close(stop)
	wg.Wait()

	recorded := make(map[string]int)
	for _, e := range site.RobotsExchanges() {
		recorded[text(e.Version)]++
		if inForce := site.History()[e.Version-1]; e.Start.Before(inForce.From) {
			t.Errorf("version %d answered at %v, before it was in force at %v", e.Version, e.Start, inForce.From)
		}
	}
	for body, n := range answers {
		if recorded[body] < n {
			t.Errorf("%d clients got %q, but the record has %d", n, body, recorded[body])
		}
	}
	if site.Dropped() > 0 {
		t.Logf("record dropped %d exchanges", site.Dropped())
	}
}

func TestRefuseAndComeBack(t *testing.T) {
	t.Parallel()
	for _, cfg := range []testorigin.Config{{}, {InMemory: true}} {
		server := testorigin.Start(t, cfg)
		site := server.Site(t, testorigin.SiteConfig{})
		old := dial(t, server, site)
		reader := bufio.NewReader(old)
		exchange(t, old, reader, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		for range 20 {
			site.SetRobots(testorigin.Refuse())
			transport := newTransport(t, server)
			if _, _, err := get(t.Context(), transport, site.URL("/")); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("while down: %v, want connection refused", err)
			}
			site.SetRobots(testorigin.OK(rules))
			if _, body := mustGet(t, transport, site.URL("/robots.txt")); body != rules {
				t.Fatalf("after the site is back: got %q", body)
			}
			transport.CloseIdleConnections()
		}
		if _, err := reader.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection from before: %v, want a reset", err)
		}
	}
}

func TestResetsAreResets(t *testing.T) {
	t.Parallel()
	for _, cfg := range []testorigin.Config{{}, {InMemory: true}} {
		server := testorigin.Start(t, cfg)
		site := server.Site(t, testorigin.SiteConfig{})
		for _, b := range []testorigin.Behaviour{testorigin.ResetAtOnce(), testorigin.ResetInHead(), testorigin.ResetInBody(rules, 5)} {
			site.SetRobots(b)
			conn := dial(t, server, site)
			if _, err := io.WriteString(conn, "GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s, memory %v: %v, want a reset", b.Name, cfg.InMemory, err)
			}
		}
	}
}

func TestBadCertificates(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https", Host: "www.example.com"})
	for kind, want := range map[testorigin.Certificate]func(error) bool{
		testorigin.CertificateExpired:     isInvalid,
		testorigin.CertificateNotYetValid: isInvalid,
		testorigin.CertificateSelfSigned: func(err error) bool {
			_, ok := errors.AsType[x509.UnknownAuthorityError](err)
			return ok
		},
		testorigin.CertificateWrongHost: func(err error) bool {
			_, ok := errors.AsType[x509.HostnameError](err)
			return ok
		},
	} {
		site.SetRobots(testorigin.BadCertificate(kind, rules))
		transport := newTransport(t, server)
		if _, _, err := get(t.Context(), transport, site.URL("/robots.txt")); !want(err) {
			t.Errorf("%v certificate: got error %v", kind, err)
		}
		careless := newTransport(t, server)
		careless.TLSClientConfig.InsecureSkipVerify = true
		if _, body := mustGet(t, careless, site.URL("/robots.txt")); body != rules {
			t.Errorf("%v certificate and a client without verification: got %q", kind, body)
		}
		careless.CloseIdleConnections()
	}
	site.SetRobots(testorigin.BadCertificate(testorigin.CertificateValid, rules))
	if _, body := mustGet(t, newTransport(t, server), site.URL("/robots.txt")); body != rules {
		t.Errorf("valid certificate: got %q", body)
	}
}

func isInvalid(err error) bool {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok && invalid.Reason == x509.Expired
}

// TestHandshakeFailureIsRecorded checks that a failed handshake is recorded although there was no
// request.
func TestHandshakeFailureIsRecorded(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	version := site.SetRobots(testorigin.HandshakeReset())
	if _, _, err := get(t.Context(), newTransport(t, server), site.URL("/robots.txt")); err == nil {
		t.Fatal("the request succeeded")
	}
	server.Close() // then the exchange has ended
	exchanges := site.Exchanges()
	if len(exchanges) != 1 || exchanges[0].Version != version || exchanges[0].Method != "" || !strings.Contains(exchanges[0].Err, "TLS handshake") {
		t.Errorf("recorded %+v, want one failed handshake", exchanges)
	}
}

// TestOlderConnectionIsReset checks that there is no answer while the TLS handshake is set to fail,
// even on a kept connection.
func TestOlderConnectionIsReset(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	site.SetRobots(testorigin.OK(rules))
	transport := newTransport(t, server)
	mustGet(t, transport, site.URL("/robots.txt"))
	site.SetRobots(testorigin.BadCertificate(testorigin.CertificateExpired, rules))
	mustGet(t, transport, site.URL("/page")) // pages are still served on the connection
	if _, body, err := get(t.Context(), transport, site.URL("/robots.txt")); err == nil {
		t.Errorf("the kept connection returned %q, want an error", body)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	site := server.Site(t, testorigin.SiteConfig{Paths: []string{"/a", "/b?x=1&y", `/"><c>`}})
	transport := newTransport(t, server)
	for path, links := range map[string][]string{
		"/":        {`"/a"`, `"/b?x=1&amp;y"`, `"/&#34;&gt;&lt;c&gt;"`},
		"/a":       {`"/"`, `"/b?x=1&amp;y"`},
		"/unknown": {`"/"`},
	} {
		status, body := mustGet(t, transport, site.URL(path))
		if status != 200 || strings.Count(body, "<a href=") != len(links) {
			t.Errorf("%s: status %d, page\n%s\nwant links %q", path, status, body, links)
		}
		for _, link := range links {
			if !strings.Contains(body, "<a href="+link) {
				t.Errorf("%s has no link to %s", path, link)
			}
		}
	}

	site.SetPath("/a", testorigin.Status(503))
	site.SetPages(testorigin.Status(410))
	for path, want := range map[string]int{"/a": 503, "/a?q": 503, "/": 410, "/robots.txt": 404} {
		if status, _ := mustGet(t, transport, site.URL(path)); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
	site.SetPath("/a", testorigin.Behaviour{})
	site.SetPages(testorigin.Behaviour{})
	if status, _ := mustGet(t, transport, site.URL("/a")); status != 200 {
		t.Errorf("/a after its reset: got status %d, want 200", status)
	}
}

func TestRFC9309_2_3_1_2_RedirectChains(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	for hops := 1; hops <= 7; hops++ {
		for _, last := range []testorigin.Behaviour{testorigin.OK(rules), testorigin.Status(404), testorigin.Status(500)} {
			site := server.Site(t, testorigin.SiteConfig{})
			site.SetRobotsChain(hops, last)
			want := last.Meaning
			if hops > 5 {
				want = testorigin.MeansAbsent
			}
			got, _, err := crawl(t.Context(), newTransport(t, server), site.URL("/robots.txt"))
			if inForce := site.History()[1]; got != want || inForce.Meaning != want {
				t.Errorf("%d hops to %s: a crawler takes it for %v (%v), the history for %v, want %v", hops, last.Name, got, err, inForce.Meaning, want)
			}
			if n := len(site.Exchanges()); n != min(hops, 5)+1 {
				t.Errorf("%d hops took %d requests, want one more than the hops, at most 6", hops, n)
			}
		}
	}
}

func TestEveryStatus(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	site := server.Site(t, testorigin.SiteConfig{})
	transport := newTransport(t, server)
	for status := 100; status <= 599; status++ {
		b := testorigin.Status(status)
		site.SetRobots(b)
		got, _, err := crawl(t.Context(), transport, site.URL("/robots.txt"))
		if got != b.Meaning {
			t.Errorf("status %d: a crawler takes it for %v (%v), want %v", status, got, err, b.Meaning)
		}
		answered := site.RobotsExchanges()
		if last := answered[len(answered)-1]; last.Status != status {
			t.Errorf("status %d is recorded as %d", status, last.Status)
		}
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rules))
	answer := send(t, server, site, "HEAD /robots.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if !strings.Contains(answer, fmt.Sprintf("Content-Length: %d\r\n", len(rules))) || !strings.HasSuffix(answer, "\r\n\r\n") {
		t.Errorf("answer to HEAD = %q, want Content-Length and no body", answer)
	}
	if resp := http.StatusText(200); !strings.HasPrefix(answer, "HTTP/1.1 200 "+resp+"\r\n") {
		t.Errorf("answer to HEAD = %q, want status 200", answer)
	}
}
