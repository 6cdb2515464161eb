package rig

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

// TestCA signs the certificates of https origins. Gateways trust it with trust_ca.
type TestCA struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	File string // PEM
}

// NewTestCA makes an authority and its file for trust_ca.
func NewTestCA(t *testing.T) *TestCA {
	t.Helper()
	a := &TestCA{key: NewKey(t)}
	a.Cert = Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "CA of the test's origins"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, a.key, a.key)
	a.File = filepath.Join(t.TempDir(), "origins.pem")
	WritePEM(t, a.File, "CERTIFICATE", a.Cert.Raw)
	return a
}

// Issue makes a certificate for names and addresses; change, if not nil, modifies it first.
func (a *TestCA) Issue(t *testing.T, hosts []string, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key := NewKey(t)
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
	return &tls.Certificate{Certificate: [][]byte{Sign(t, template, a.Cert, &key.PublicKey, a.key).Raw}, PrivateKey: key}
}

// NewKey makes a private key.
func NewKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Sign makes a certificate that is valid now unless the template says otherwise. Without a parent
// it is self-signed.
func Sign(t *testing.T, template, parent *x509.Certificate, public any, signer *ecdsa.PrivateKey) *x509.Certificate {
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

// WritePEM writes blocks of one kind to a file.
func WritePEM(t *testing.T, file, kind string, ders ...[]byte) {
	t.Helper()
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
}

// WriteKey writes a private key to a file in PEM.
func WriteKey(t *testing.T, file string, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	WritePEM(t, file, "PRIVATE KEY", der)
}

// SecureSite is an https origin on net/http, with HTTP/2 and HTTP/1.1, at localhost and 127.0.0.1.
type SecureSite struct {
	*httptest.Server
	Port string
	Tls  atomic.Pointer[tls.Config] // for later handshakes

	Mu   sync.Mutex
	Seen []Seen
}

// Seen is a request that reached a site.
type Seen struct {
	Target string // path and query
	Proto  string
	Header http.Header
	Secure bool
}

// SecureRules has a rule of each kind that a small site needs.
const SecureRules = "User-agent: *\nDisallow: /private/\nAllow: /private/open.html\nDisallow: /search\n"

// SecurePages are the pages of a site, and whether SecureRules permit them.
var SecurePages = map[string]bool{
	"/": true, "/news/a.html": true, "/news/b.html": true, "/private/open.html": true,
	"/private/page.html": false, "/search?q=robots": false,
}

// StartSecureSite starts a site with SecureRules and SecurePages; a handler, if not nil, answers
// everything except /robots.txt.
func StartSecureSite(t *testing.T, a *TestCA, h http.Handler) *SecureSite {
	t.Helper()
	s := NewSecureSite(t, a, h)
	s.StartTLS()
	_, s.Port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return s
}

// NewSecureSite is like StartSecureSite, but does not start the site.
func NewSecureSite(t *testing.T, a *TestCA, h http.Handler) *SecureSite {
	t.Helper()
	s := new(SecureSite)
	if h == nil {
		h = http.HandlerFunc(ServePages)
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, SecureRules)
			return
		}
		s.Mu.Lock()
		s.Seen = append(s.Seen, Seen{r.URL.RequestURI(), r.Proto, r.Header.Clone(), r.TLS != nil})
		s.Mu.Unlock()
		h.ServeHTTP(w, r)
	}
	s.Server = &httptest.Server{
		Listener: listenAnew(t), EnableHTTP2: true,
		Config: &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: log.New(io.Discard, "", 0)},
	}
	s.Show(a.Issue(t, []string{"localhost", "127.0.0.1"}, nil))
	s.TLS = &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.Tls.Load(), nil },
	}
	t.Cleanup(s.Close)
	return s
}

// portsOfSites has the ports that listenAnew has returned.
var portsOfSites sync.Map

// listenAnew listens at a port that no secure site of this process had before. Tests that share a
// gateway start and stop sites, and the gateway's cache and log know a site by its port.
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
		defer l.Close() // not before the end, so that the system does not return the same port
	}
}

// Show changes the site's certificate.
func (s *SecureSite) Show(cert *tls.Certificate) {
	s.Tls.Store(&tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}})
}

// ServePages serves pages that link to all other pages.
func ServePages(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	var page strings.Builder
	page.WriteString("<!DOCTYPE html><title>page</title><link rel=\"icon\" href=\"data:,\"><h1>this is " + r.URL.Path + "</h1>\n")
	for path := range SecurePages {
		page.WriteString(`<a href="` + path + `">` + path + "</a>\n")
	}
	_, _ = io.WriteString(w, page.String())
}

// Authority returns the site's host and port.
func (s *SecureSite) Authority() string { return "localhost:" + s.Port }

// At returns the absolute URL of a path.
func (s *SecureSite) At(path string) string { return "https://" + s.Authority() + path }

// Arrived returns the requests that reached the site, in order.
func (s *SecureSite) Arrived() []Seen {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.Seen)
}

// Targets returns the paths and queries that reached the site, in order.
func (s *SecureSite) Targets() []string {
	var targets []string
	for _, r := range s.Arrived() {
		targets = append(targets, r.Target)
	}
	return targets
}

// Trusting returns c with the options for sites of an authority.
func (c Config) Trusting(a *TestCA) Config {
	c.Egress = strings.TrimSpace(c.Egress + "\ntrust_ca " + a.File)
	return c
}

// Unpaced is the engine of tests that are not about politeness.
const Unpaced = "pace {\nrate off\nconcurrency 10000\nqueue 10000\n}"
