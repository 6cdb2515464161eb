package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testAuthority signs the certificates of https origins. Gateways trust it by trust_ca.
type testAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newTestAuthority(t *testing.T) *testAuthority {
	t.Helper()
	a := &testAuthority{key: newKey(t)}
	a.cert = sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "CA of the test's origins"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.key, a.key)
	a.file = filepath.Join(t.TempDir(), "origins.pem")
	writePEM(t, a.file, "CERTIFICATE", a.cert.Raw)
	return a
}

// issue makes a certificate for names and addresses; change, if not nil, spoils it first.
func (a *testAuthority) issue(t *testing.T, hosts []string, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if change != nil {
		change(template)
	}
	return &tls.Certificate{Certificate: [][]byte{sign(t, template, a.cert, &key.PublicKey, a.key).Raw}, PrivateKey: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes a certificate that is valid now unless the template says otherwise; without a parent, self-signed.
func sign(t *testing.T, template, parent *x509.Certificate, public any, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	if key, ok := public.(*ecdsa.PrivateKey); ok {
		public = &key.PublicKey
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t *testing.T, file, kind string, ders ...[]byte) {
	t.Helper()
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
}

func writeKey(t *testing.T, file string, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, file, "PRIVATE KEY", der)
}

// secureSite is an https origin that speaks HTTP/2 and HTTP/1.1 as net/http does, at localhost and on 127.0.0.1.
type secureSite struct {
	*httptest.Server
	port string
	tls  atomic.Pointer[tls.Config] // for the handshakes from now on

	mu   sync.Mutex
	seen []seen
}

// seen is a request that reached a site.
type seen struct {
	target string // path and query
	proto  string
	header http.Header
	secure bool
}

// secureRules has a rule of each kind that a small site needs.
const secureRules = "User-agent: *\nDisallow: /private/\nAllow: /private/open.html\nDisallow: /search\n"

// securePages are the pages of a site, and whether secureRules allow them.
var securePages = map[string]bool{
	"/": true, "/news/a.html": true, "/news/b.html": true, "/private/open.html": true,
	"/private/page.html": false, "/search?q=robots": false,
}

// startSecureSite starts a site with secureRules and securePages; a handler, if not nil, answers all but /robots.txt.
func startSecureSite(t *testing.T, a *testAuthority, h http.Handler) *secureSite {
	t.Helper()
	s := newSecureSite(t, a, h)
	s.StartTLS()
	_, s.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return s
}

func newSecureSite(t *testing.T, a *testAuthority, h http.Handler) *secureSite {
	t.Helper()
	s := new(secureSite)
	if h == nil {
		h = http.HandlerFunc(servePages)
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, secureRules)
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, seen{r.URL.RequestURI(), r.Proto, r.Header.Clone(), r.TLS != nil})
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	}
	s.Server = &httptest.Server{
		Listener: listenAnew(t), EnableHTTP2: true,
		Config: &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: log.New(io.Discard, "", 0)},
	}
	s.show(a.issue(t, []string{"localhost", "127.0.0.1"}, nil))
	s.TLS = &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil },
	}
	t.Cleanup(s.Close)
	return s
}

// portsOfSites holds the ports that listenAnew gave.
var portsOfSites sync.Map

// listenAnew listens at a port that no secure site of this run had: tests that share a gateway have sites that come and
// go, and its cache and its log know a site by its port.
func listenAnew(t *testing.T) net.Listener {
	t.Helper()
	for {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, had := portsOfSites.LoadOrStore(l.Addr().String(), true); !had {
			return l
		}
		defer l.Close() // later, so that the same port is not given again
	}
}

// show makes a certificate the site's.
func (s *secureSite) show(cert *tls.Certificate) {
	s.tls.Store(&tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}})
}

// servePages answers with a page that links to all pages.
func servePages(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := "<!DOCTYPE html><title>page</title><link rel=\"icon\" href=\"data:,\"><h1>this is " + r.URL.Path + "</h1>\n"
	for path := range securePages {
		page += `<a href="` + path + `">` + path + "</a>\n"
	}
	_, _ = io.WriteString(w, page)
}

// authority is the site's host and port.
func (s *secureSite) authority() string { return "localhost:" + s.port }

// at is the absolute URL of a path.
func (s *secureSite) at(path string) string { return "https://" + s.authority() + path }

// arrived gives what reached the site, in order.
func (s *secureSite) arrived() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// targets gives the paths and queries that reached the site.
func (s *secureSite) targets() []string {
	var targets []string
	for _, r := range s.arrived() {
		targets = append(targets, r.target)
	}
	return targets
}

// trusting adds what a gateway needs for the site of an authority.
func (c gatewayConfig) trusting(a *testAuthority) gatewayConfig {
	c.Egress = strings.TrimSpace(c.Egress + "\ntrust_ca " + a.file)
	return c
}

// unpaced is the engine of tests that are not about politeness.
const unpaced = "pace {\nrate off\nconcurrency 10000\nqueue 10000\n}"
