//go:build slow

package https

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestHTTPSAuthorityRenewal renews the intermediate certificate over and over while clients open
// tunnels. Every chain must verify.
func TestHTTPSAuthorityRenewal(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{
		Engine: rig.Unpaced,
		// Caddy renews the certificate whenever it looks, which is twice a second.
		Global: "pki {\nca robots {\nintermediate_lifetime 1h\nrenewal_window_ratio 1\nmaintenance_interval 500ms\n}\n}",
	}.Trusting(authority))
	site := rig.StartSecureSite(t, authority, nil)
	roots := g.Authority()

	var mu sync.Mutex
	issuers, tunnels := make(map[string]bool), 0
	end := time.Now().Add(4 * time.Second)
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for time.Now().Before(end) {
				chain, err := g.OneTunnel(site, roots)
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
		t.Errorf("the leaves had %d intermediates, want at least 3", len(issuers))
	}
	t.Logf("%d tunnels, %d intermediates", tunnels, len(issuers))
}

// TestHTTPSCertificatesBeginADayEarly checks that the certificates are valid for a client whose
// clock is slow: after the first start, after a renewal, and after another start.
func TestHTTPSCertificatesBeginADayEarly(t *testing.T) {
	t.Parallel()
	for name, global := range map[string]string{
		"default":         "",
		"with a CA named": "pki {\nca robots {\nintermediate_lifetime 1h\nrenewal_window_ratio 1\nmaintenance_interval 500ms\n}\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			authority := rig.NewTestCA(t)
			c := rig.Config{Engine: rig.Unpaced, Global: global}.Trusting(authority)
			g := rig.New(t, c)
			site := rig.StartSecureSite(t, authority, nil)
			root := g.Own("/ca.crt").Body
			look := func() *x509.Certificate {
				t.Helper()
				chain, err := g.OneTunnel(site, g.Authority())
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
				rig.Eventually(t, "a renewal", func() bool { return !look().Equal(first) })
			}
			g.Stop()
			if err := g.Start(c); err != nil {
				t.Fatal(err)
			}
			look()
			if again := g.Own("/ca.crt").Body; again != root {
				t.Errorf("a second start made a different root:\n%s\n%s", root, again)
			}
		})
	}
}

// TestHTTPSOperatorsAuthority uses a root and an intermediate of the company, which Caddy's pki app
// loads. It does not need the root's key.
func TestHTTPSOperatorsAuthority(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	dir := t.TempDir()
	rootKey, interKey := rig.NewKey(t), rig.NewKey(t)
	root := rig.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Acme Root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(1000 * time.Hour),
	}, nil, rootKey, rootKey)
	inter := rig.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Acme Crawling"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(30 * time.Hour), // earlier than a leaf usually ends
	}, root, interKey, rootKey)
	rig.WritePEM(t, filepath.Join(dir, "root.pem"), "CERTIFICATE", root.Raw)
	rig.WritePEM(t, filepath.Join(dir, "inter.pem"), "CERTIFICATE", inter.Raw)
	rig.WriteKey(t, filepath.Join(dir, "inter.key"), interKey)
	g := rig.New(t, rig.Config{
		Engine: rig.Unpaced,
		Global: fmt.Sprintf("pki {\nca robots {\nroot {\ncert %[1]s/root.pem\n}\nintermediate {\ncert %[1]s/inter.pem\nkey %[1]s/inter.key\n}\n}\n}", dir),
	}.Trusting(authority))
	site := rig.StartSecureSite(t, authority, nil)
	roots := x509.NewCertPool()
	roots.AddCert(root)
	chain, err := g.OneTunnel(site, roots)
	if err != nil {
		t.Fatal(err)
	}
	if leaf := chain[0]; chain[1].Subject.CommonName != "Acme Crawling" || leaf.NotAfter.After(inter.NotAfter) || leaf.NotBefore.Before(inter.NotBefore) {
		t.Errorf("the leaf was issued by %v and is valid from %v to %v", leaf.Issuer, leaf.NotBefore, leaf.NotAfter)
	}
	if page := g.Own("/"); !strings.Contains(page.Body, "Acme Root") {
		t.Errorf("the gateway's page does not name the company's root:\n%s", page.Body)
	}
	if !g.Authority().Equal(roots) {
		t.Error("/ca.crt is not the company's root")
	}
}

// TestHTTPSAuthorityIsTrustedNowhere starts a gateway in a home directory with the databases in
// which Caddy would install its own CA, and checks that this machine trusts no new certificate.
func TestHTTPSAuthorityIsTrustedNowhere(t *testing.T) {
	certutil := rig.Need(t, "certutil")
	home := t.TempDir()
	db := filepath.Join(home, ".pki", "nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	rig.RunBounded(t, exec.Command(certutil, "-d", "sql:"+db, "-N", "--empty-password"))
	t.Setenv("HOME", home)
	for name, global := range map[string]string{
		"default":         "",
		"with a CA named": "pki {\nca robots {\nname Acme\nroot_cn AcmeRoot\n}\n}",
	} {
		before := trustedBySystem(t)
		g := rig.New(t, rig.Config{Global: global})
		certificate := strings.TrimSpace(g.Own("/ca.crt").Body)
		g.Stop()
		if after := trustedBySystem(t); after != before {
			t.Errorf("%s: the system's trust store has changed", name)
		}
		if strings.Contains(before, certificate) {
			t.Errorf("%s: the system trusts the gateway's certificate", name)
		}
		if list := rig.RunBounded(t, exec.Command(certutil, "-d", "sql:"+db, "-L", "-h", "all")); strings.Contains(list, "CT") || strings.Contains(list, "C,") {
			t.Errorf("%s: the user's database has a trusted certificate:\n%s", name, list)
		}
	}
}

// trustedBySystem returns the bundle of trusted authorities of Debian and most other systems.
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

// TestHTTPSManyHosts opens a tunnel to each of some thousand hosts (100,000 in full). Each host has
// its own certificate, and the gateway's memory is bounded.
func TestHTTPSManyHosts(t *testing.T) {
	t.Parallel()
	hosts := 2000
	switch {
	case rig.Long():
		hosts = 100_000
	case rig.RaceEnabled:
		hosts = 500
	}
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "mode off"}.Trusting(authority))
	roots := g.Authority()
	before := g.Usage()

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
	after := g.Usage()
	t.Logf("%d hosts: %.0f µs of CPU each, memory at most %.1f MiB before and %.1f MiB after", hosts,
		(after.Cpu-before.Cpu).Seconds()*1e6/float64(hosts), float64(before.PeakRSS)/(1<<20), float64(after.PeakRSS)/(1<<20))
	if grown := after.PeakRSS - before.PeakRSS; grown > 128<<20 && !rig.RaceEnabled {
		t.Errorf("the gateway's memory has grown by %d MiB for %d hosts, want at most 128 MiB", grown>>20, hosts)
	}
}

// leafOf returns the verified certificate that the gateway shows for a host.
func leafOf(g *rig.Gateway, host string, roots *x509.CertPool) (*x509.Certificate, error) {
	w, err := g.OpenTunnel(g.T.Context(), net.JoinHostPort(host, "443"))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	inner, err := w.Over(g.T, &tls.Config{RootCAs: roots, ServerName: host, CurvePreferences: []tls.CurveID{tls.X25519}})
	if err != nil {
		return nil, err
	}
	return inner.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}
