//go:build slow

package https

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestHTTPSOldOrigins uses origins with old TLS. crypto/tls refuses them, and accepts some of them
// with a GODEBUG. docs/connect.md has the table.
func TestHTTPSOldOrigins(t *testing.T) {
	t.Parallel()
	const anyCipher = "ALL:@SECLEVEL=0"
	old := func(cipher string, more ...string) []string {
		return append([]string{"-tls1_2", "-cipher", cipher}, more...)
	}
	for _, tt := range []struct {
		name   string
		cert   []string // options of its certificate
		serve  []string // options of its openssl server
		suite  uint16   // a Go server with this suite instead of openssl
		brings string   // the GODEBUG that makes the origin reachable, if any
		others string   // otherwise, a GODEBUG that looks as if it should
	}{
		{name: "RSA key exchange", serve: old("AES128-GCM-SHA256"), brings: "tlsrsakex=1"},
		{name: "RSA key exchange, CBC and SHA-1", serve: old("AES256-SHA"), brings: "tlsrsakex=1"},
		{name: "RSA key exchange, CBC and SHA-256", serve: old("AES128-SHA256"), others: "tlsrsakex=1"},
		{name: "CBC and SHA-256", serve: old("ECDHE-RSA-AES128-SHA256"), others: "tlsrsakex=1,tls3des=1"},
		{name: "finite-field Diffie-Hellman", serve: old("DHE-RSA-AES128-GCM-SHA256"), others: "tlsrsakex=1"},
		{name: "triple DES", suite: tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA, brings: "tls3des=1"},
		{name: "RC4", suite: tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA, others: "tls3des=1"},
		{name: "SHA-1 in the handshake", serve: old(anyCipher, "-sigalgs", "RSA+SHA1"), brings: "tlssha1=1"},
		{name: "RSA key of 1,000 bits", cert: []string{"-newkey", "rsa:1000"}, serve: old(anyCipher), brings: "rsa1024min=0"},
		{name: "RSA key of 1,024 bits", cert: []string{"-newkey", "rsa:1024"}, serve: old(anyCipher), brings: "default"},
		{name: "negative serial number", cert: []string{"-set_serial", "-5"}, brings: "x509negativeserial=1"},
		{name: "TLS 1.1", serve: []string{"-tls1_1", "-cipher", anyCipher}, others: "tls10server=1"},
		{name: "TLS 1.0", serve: []string{"-tls1", "-cipher", anyCipher}, others: "tls10server=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var url, cert string
			if tt.suite != 0 {
				url, cert = startSuite(t, tt.suite)
			} else {
				url, cert = startOpenSSL(t, tt.cert, tt.serve)
			}
			reached := func(debug string) bool {
				g := rig.New(t, rig.Config{
					Engine: "store none\n" + rig.Unpaced, Egress: "trust_ca " + cert,
					Env: []string{"GODEBUG=" + debug},
				})
				defer g.Stop()
				a := g.MustFetch("Tester/1.0", url)
				if line := g.Logs(1)[0]; a.Status != http.StatusOK && line.Robots.Cause != "tls" {
					t.Errorf("GODEBUG=%s: status %d, want the cause tls: %s", debug, a.Status, line.Raw)
				}
				return a.Status == http.StatusOK
			}
			switch {
			case tt.brings == "default":
				if !reached("") {
					t.Error("the origin is refused without a GODEBUG")
				}
			case reached(""):
				t.Error("the origin is reached without a GODEBUG")
			case tt.brings != "" && !reached(tt.brings):
				t.Errorf("the origin is refused with GODEBUG=%s", tt.brings)
			case tt.brings == "" && reached(tt.others):
				t.Errorf("the origin is reached with GODEBUG=%s", tt.others)
			}
		})
	}
}

// startSuite starts a server with one cipher suite, and returns its URL and the file of its
// certificate.
func startSuite(t *testing.T, suite uint16) (url, file string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(rig.ServePages))
	s.TLS = &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
	s.StartTLS()
	t.Cleanup(s.Close)
	file = filepath.Join(rig.TempDir(t), "cert.pem")
	rig.WritePEM(t, file, "CERTIFICATE", s.Certificate().Raw)
	return s.URL + "/", file
}

// startOpenSSL starts openssl as a server with a self-signed certificate. It serves a page for each
// path.
func startOpenSSL(t *testing.T, cert, serve []string) (url, file string) {
	t.Helper()
	openssl := rig.Need(t, "openssl")
	dir := rig.TempDir(t)
	key, file := filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem")
	if !slices.Contains(cert, "-newkey") {
		cert = append([]string{"-newkey", "rsa:2048"}, cert...)
	}
	request := append([]string{
		"req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", file,
	}, cert...)
	if out, err := exec.CommandContext(t.Context(), openssl, request...).CombinedOutput(); err != nil {
		t.Fatalf("openssl req: %v: %s", err, out)
	}
	_, port, _ := strings.Cut(rig.FreePort(t), ":")
	cmd := exec.Command(openssl, append([]string{"s_server", "-accept", "127.0.0.1:" + port, "-cert", file, "-key", key, "-www"}, serve...)...)
	out := new(rig.Tail)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	rig.Eventually(t, "openssl to listen", func() bool { return strings.Contains(out.String(), "ACCEPT") })
	// The file has a second authority, as when a private one is added to the system's. Go leaves
	// out a certificate that it cannot read.
	trusted, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(rig.NewTestCA(t).File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(other, trusted...), 0o600); err != nil {
		t.Fatal(err)
	}
	return "https://localhost:" + port + "/", file
}
