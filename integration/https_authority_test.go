package integration

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestHTTPSAuthorityRenewal has the intermediate certificate renewed over and over while clients open tunnels. None of
// them may meet a chain that does not verify.
func TestHTTPSAuthorityRenewal(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	g := startGateway(t, gatewayConfig{
		Engine: unpaced,
		// Renewed as soon as somebody looks, which is twice a second.
		Global: "pki {\nca robots {\nintermediate_lifetime 1h\nrenewal_window_ratio 1\nmaintenance_interval 500ms\n}\n}",
	}.trusting(authority))
	site := startSecureSite(t, authority, nil)
	roots := g.authority()

	var mu sync.Mutex
	issuers, tunnels := make(map[string]bool), 0
	end := time.Now().Add(4 * time.Second)
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for time.Now().Before(end) {
				chain, err := oneTunnel(g, site, roots)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				issuers[chain[1].SerialNumber.String()] = true
				tunnels++
				mu.Unlock()
			}
		})
	}
	load.Wait()
	if len(issuers) < 3 {
		t.Errorf("the leaves had %d intermediates in all: nothing was renewed", len(issuers))
	}
	t.Logf("%d tunnels, %d intermediates", tunnels, len(issuers))
}

// TestHTTPSCertificatesBeginADayEarly looks at the certificates as a client sees them whose clock is behind, after the first
// start, after a renewal and after another start.
func TestHTTPSCertificatesBeginADayEarly(t *testing.T) {
	t.Parallel()
	for name, global := range map[string]string{
		"as it comes":     "",
		"with a CA named": "pki {\nca robots {\nintermediate_lifetime 1h\nrenewal_window_ratio 1\nmaintenance_interval 500ms\n}\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			authority := newTestAuthority(t)
			c := gatewayConfig{Engine: unpaced, Global: global}.trusting(authority)
			g := startGateway(t, c)
			site := startSecureSite(t, authority, nil)
			root := g.own("/ca.crt").body
			look := func() *x509.Certificate {
				t.Helper()
				chain, err := oneTunnel(g, site, g.authority())
				if err != nil {
					t.Fatal(err)
				}
				day := time.Now().Add(-24*time.Hour + time.Minute)
				for _, cert := range chain {
					if cert.NotBefore.After(day) {
						t.Errorf("%s begins %s, less than a day ago", cert.Subject.CommonName, cert.NotBefore)
					}
				}
				return chain[1]
			}
			first := look()
			if global != "" {
				eventually(t, "a renewal", func() bool { return !look().Equal(first) })
			}
			g.stop()
			if err := g.start(c); err != nil {
				t.Fatal(err)
			}
			look()
			if again := g.own("/ca.crt").body; again != root {
				t.Errorf("another start made another root:\n%s\n%s", root, again)
			}
		})
	}
}

// errUnread is a connection that the gateway closed without a word.
var errUnread = errors.New("closed before CONNECT was read")

// open opens a tunnel outside of the test's own goroutine. The caller closes it.
func (g *gateway) open(ctx context.Context, authority string) (*wire, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.addr)
	if err != nil {
		return nil, unread(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	w := &wire{conn, bufio.NewReader(conn)}
	_, err = io.WriteString(conn, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(w.r, &http.Request{Method: http.MethodConnect})
	}
	switch {
	case err != nil:
		err = unread(err)
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("CONNECT %s: %s", authority, resp.Status)
	default:
		return w, nil
	}
	_ = conn.Close()
	return nil, err
}

// unread marks the errors of a connection that was closed.
func unread(err error) error {
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return fmt.Errorf("%w: %w", errUnread, err)
		}
	}
	return err
}

// oneTunnel opens a tunnel, asks for a page inside and gives the chain that verified.
func oneTunnel(g *gateway, site *secureSite, roots *x509.CertPool) ([]*x509.Certificate, error) {
	w, err := g.open(g.t.Context(), site.authority())
	if err != nil {
		return nil, err
	}
	defer w.Close()
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", CurvePreferences: []tls.CurveID{tls.X25519}}
	inner, err := w.over(g.t, config)
	if err != nil {
		return nil, err
	}
	a, err := inner.ask(http.MethodGet, "GET /news/a.html HTTP/1.1\r\nHost: "+site.authority()+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
	if err != nil || a.status != http.StatusOK {
		return nil, fmt.Errorf("GET: %d, %w", a.status, err)
	}
	return inner.Conn.(*tls.Conn).ConnectionState().VerifiedChains[0], nil
}

// TestHTTPSOperatorsAuthority signs with a root and an intermediate of the company, which Caddy's pki app loads. The root's
// key may stay where it is.
func TestHTTPSOperatorsAuthority(t *testing.T) {
	t.Parallel()
	authority := newTestAuthority(t)
	dir := t.TempDir()
	rootKey, interKey := newKey(t), newKey(t)
	root := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Acme Root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(1000 * time.Hour),
	}, nil, rootKey, rootKey)
	inter := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Acme Crawling"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(30 * time.Hour), // sooner than a leaf would end
	}, root, interKey, rootKey)
	writePEM(t, filepath.Join(dir, "root.pem"), "CERTIFICATE", root.Raw)
	writePEM(t, filepath.Join(dir, "inter.pem"), "CERTIFICATE", inter.Raw)
	writeKey(t, filepath.Join(dir, "inter.key"), interKey)
	g := startGateway(t, gatewayConfig{
		Engine: unpaced,
		Global: fmt.Sprintf("pki {\nca robots {\nroot {\ncert %[1]s/root.pem\n}\nintermediate {\ncert %[1]s/inter.pem\nkey %[1]s/inter.key\n}\n}\n}", dir),
	}.trusting(authority))
	site := startSecureSite(t, authority, nil)
	roots := x509.NewCertPool()
	roots.AddCert(root)
	chain, err := oneTunnel(g, site, roots)
	if err != nil {
		t.Fatal(err)
	}
	if leaf := chain[0]; chain[1].Subject.CommonName != "Acme Crawling" || leaf.NotAfter.After(inter.NotAfter) || leaf.NotBefore.Before(inter.NotBefore) {
		t.Errorf("the leaf is of %v, valid from %v to %v", leaf.Issuer, leaf.NotBefore, leaf.NotAfter)
	}
	if page := g.own("/"); !strings.Contains(page.body, "Acme Root") {
		t.Errorf("the gateway's page does not name the company's root:\n%s", page.body)
	}
	if !g.authority().Equal(roots) {
		t.Error("/ca.crt is another certificate than the company's root")
	}
}

// TestHTTPSAuthorityIsTrustedNowhere starts a gateway in a home with the databases that Caddy would install its own CA in,
// and looks whether anything of this machine came to trust a certificate.
func TestHTTPSAuthorityIsTrustedNowhere(t *testing.T) {
	certutil := need(t, "certutil")
	home := t.TempDir()
	db := filepath.Join(home, ".pki", "nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	runBounded(t, exec.Command(certutil, "-d", "sql:"+db, "-N", "--empty-password"))
	t.Setenv("HOME", home)
	for name, global := range map[string]string{
		"as it comes":     "",
		"with a CA named": "pki {\nca robots {\nname Acme\nroot_cn AcmeRoot\n}\n}",
	} {
		before := trustedBySystem(t)
		g := startGateway(t, gatewayConfig{Global: global})
		certificate := strings.TrimSpace(g.own("/ca.crt").body)
		g.stop()
		if after := trustedBySystem(t); after != before {
			t.Errorf("%s: the system's trust store has changed", name)
		}
		if strings.Contains(before, certificate) {
			t.Errorf("%s: the system trusts the gateway's certificate", name)
		}
		if list := runBounded(t, exec.Command(certutil, "-d", "sql:"+db, "-L", "-h", "all")); strings.Contains(list, "CT") || strings.Contains(list, "C,") {
			t.Errorf("%s: the user's database has a trusted certificate:\n%s", name, list)
		}
	}
}

// trustedBySystem is the bundle of trusted authorities that Debian and most other systems keep.
func trustedBySystem(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/*", "/etc/ssl/certs/java/cacerts"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "%s %x\n%s\n", file, sha256.Sum256(content), content)
		}
	}
	return all.String()
}

// TestHTTPSManyHosts goes to some thousand hosts (in full, a hundred thousand), each by a tunnel of its own. Each has a
// certificate of its own, and the gateway does not grow without bound.
func TestHTTPSManyHosts(t *testing.T) {
	t.Parallel()
	hosts := 2000
	switch {
	case long():
		hosts = 100_000
	case raceEnabled:
		hosts = 500
	}
	authority := newTestAuthority(t)
	g := startGateway(t, gatewayConfig{Engine: unpaced, Site: "mode off"}.trusting(authority))
	roots := g.authority()
	before := g.usage()

	var mu sync.Mutex
	seen := make(map[string]string, hosts) // fingerprint to host
	next := make(chan string)
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for host := range next {
				leaf, err := leafOf(g, host, roots)
				if err != nil {
					t.Errorf("%s: %v", host, err)
					continue
				}
				sum := sha256.Sum256(leaf.Raw)
				mu.Lock()
				if other, ok := seen[string(sum[:])]; ok || len(leaf.DNSNames)+len(leaf.IPAddresses) != 1 {
					t.Errorf("%s has the certificate of %s", host, other)
				}
				seen[string(sum[:])] = host
				mu.Unlock()
			}
		})
	}
	for i := range hosts {
		if i%2 == 0 {
			next <- fmt.Sprintf("www-%d.example", i)
		} else {
			next <- fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&255, i&255)
		}
	}
	close(next)
	load.Wait()
	after := g.usage()
	t.Logf("%d hosts: %.0f µs of CPU each, memory at most %.1f MiB before and %.1f MiB after", hosts,
		(after.cpu-before.cpu).Seconds()*1e6/float64(hosts), float64(before.peakRSS)/(1<<20), float64(after.peakRSS)/(1<<20))
	if grown := after.peakRSS - before.peakRSS; grown > 128<<20 && !raceEnabled {
		t.Errorf("the gateway has grown by %d MiB for %d hosts", grown>>20, hosts)
	}
}

// leafOf is the certificate that the gateway shows for a host, verified.
func leafOf(g *gateway, host string, roots *x509.CertPool) (*x509.Certificate, error) {
	w, err := g.open(g.t.Context(), net.JoinHostPort(host, "443"))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	inner, err := w.over(g.t, &tls.Config{RootCAs: roots, ServerName: host, CurvePreferences: []tls.CurveID{tls.X25519}})
	if err != nil {
		return nil, err
	}
	return inner.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}
