package mint

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/internal/testca"
)

func newTestMinter(tb testing.TB, issuer Issuer) *Minter {
	tb.Helper()
	m, err := New(issuer)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// counting counts the uses of its key: one for each leaf.
type counting struct {
	Issuer
	made atomic.Int64
}

func (c *counting) Signer() crypto.Signer {
	c.made.Add(1)
	return c.Issuer.Signer()
}

func leafCert(tb testing.TB, c *tls.Certificate) *x509.Certificate {
	tb.Helper()
	l, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func mint(tb testing.TB, m *Minter, host string) *x509.Certificate {
	tb.Helper()
	c, err := m.Certificate(host)
	if err != nil {
		tb.Fatal(err)
	}
	return leafCert(tb, c)
}

// TestMinterLeaves checks that a leaf is valid for its host only, for a server, with a chain up to
// the root (RFC 5280 and RFC 6125).
func TestMinterLeaves(t *testing.T) {
	t.Parallel()
	a := testca.New(t)
	m := newTestMinter(t, a)
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example"
	for _, host := range []string{"www.example.com", "xn--bcher-kva.example", "under_score.example", "localhost", long, "192.0.2.1", "2001:db8::1"} {
		c, err := m.Certificate(host)
		if err != nil {
			t.Fatal(err)
		}
		between := x509.NewCertPool()
		for _, der := range c.Certificate[1:] {
			ic, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			between.AddCert(ic)
		}
		l := leafCert(t, c)
		options := x509.VerifyOptions{DNSName: host, Roots: a.Pool(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := l.Verify(options); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if l.VerifyHostname("other.example") == nil || l.VerifyHostname("www."+host) == nil {
			t.Errorf("%s: the leaf is valid for other hosts: %v %v", host, l.DNSNames, l.IPAddresses)
		}
		if l.IsCA || l.KeyUsage != x509.KeyUsageDigitalSignature || len(l.Subject.CommonName) > maxCommonName {
			t.Errorf("%s: CA %v, usage %v, name %q", host, l.IsCA, l.KeyUsage, l.Subject.CommonName)
		}
		if l.SerialNumber.Sign() <= 0 || l.SerialNumber.BitLen() > 159 {
			t.Errorf("%s: serial %v", host, l.SerialNumber)
		}
		if l.NotBefore.Before(a.Chain()[0].NotBefore) || l.NotAfter.After(a.Chain()[0].NotAfter) {
			t.Errorf("%s: valid from %v until %v, its issuer from %v until %v", host, l.NotBefore, l.NotAfter, a.Chain()[0].NotBefore, a.Chain()[0].NotAfter)
		}
	}
}

func TestMinterSerialsAreUnique(t *testing.T) {
	t.Parallel()
	m := newTestMinter(t, testca.New(t))
	m.limit = 10
	seen := make(map[string]bool)
	for i := range 1000 {
		serial := mint(t, m, fmt.Sprintf("h%d.example", i)).SerialNumber.String()
		if seen[serial] {
			t.Fatalf("the serial number %s occurs twice", serial)
		}
		seen[serial] = true
	}
}

// TestMinterKeeps checks that a host's leaf is made once and renewed in time, and that the number
// of kept leaves is bounded.
func TestMinterKeeps(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	issuer := &counting{Issuer: testca.New(t)}
	m := newTestMinter(t, issuer)
	m.limit, m.now = 3, func() time.Time { return now }
	first := mint(t, m, "a")
	if first.NotBefore.After(now.Add(-time.Minute)) || first.NotAfter.Sub(now) != leafLifetime {
		t.Errorf("the leaf is valid from %v until %v", first.NotBefore, first.NotAfter)
	}
	now = now.Add(leafLifetime*2/3 - time.Second)
	if again := mint(t, m, "a"); again.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("the leaf was renewed too early")
	}
	now = now.Add(time.Second)
	renewed := mint(t, m, "a")
	if renewed.SerialNumber.Cmp(first.SerialNumber) == 0 || issuer.made.Load() != 2 {
		t.Errorf("the leaf was not renewed in time; %d leaves made", issuer.made.Load())
	}
	for _, host := range []string{"b", "c", "d", "e"} {
		mint(t, m, host)
	}
	before := issuer.made.Load()
	if mint(t, m, "e"); issuer.made.Load() != before || m.Len() != 3 {
		t.Errorf("%d leaves kept, %d made again; want 3 and 0", m.Len(), issuer.made.Load()-before)
	}
	for _, host := range []string{"a", "b", "c", "d"} {
		mint(t, m, host)
	}
	if made := issuer.made.Load() - before; made < 2 || m.Len() != 3 {
		t.Errorf("%d leaves kept, %d made again; want 3 and at least 2", m.Len(), made)
	}
}

// TestMinterRenewedIssuer checks that the leaves of a renewed issuer are no longer used. The two
// calls that read the issuer may return different generations.
func TestMinterRenewedIssuer(t *testing.T) {
	t.Parallel()
	a := testca.New(t)
	m := newTestMinter(t, a)
	first := mint(t, m, "a")
	mint(t, m, "b")
	a.Renew(t, time.Now().Add(-time.Minute), time.Now().Add(time.Hour))
	a.Skew.Store(1)
	second := mint(t, m, "a")
	if second.SerialNumber.Cmp(first.SerialNumber) == 0 || second.CheckSignatureFrom(a.Chain()[0]) != nil || m.Len() != 1 {
		t.Errorf("Certificate returned a leaf of the previous issuer; %d leaves kept", m.Len())
	}
	a.Skew.Store(2)
	if c, err := m.Certificate("c"); err == nil {
		t.Errorf("minted %v with a key that is not the issuer's", c)
	}
	a.Skew.Store(0)
	mint(t, m, "c")
}

func TestMinterClampsToIssuer(t *testing.T) {
	t.Parallel()
	a := testca.New(t)
	until := time.Now().Add(90 * time.Minute)
	a.Renew(t, time.Now().Add(-10*time.Minute), until)
	now := time.Now()
	issuer := &counting{Issuer: a}
	m := newTestMinter(t, issuer)
	m.now = func() time.Time { return now }
	l := mint(t, m, "a")
	if !l.NotAfter.Equal(a.Chain()[0].NotAfter) || !l.NotBefore.Equal(a.Chain()[0].NotBefore) {
		t.Errorf("the leaf is valid from %v until %v, want its issuer's times", l.NotBefore, l.NotAfter)
	}
	now = now.Add(80 * time.Minute) // renewal is due but gives no later end, so not every handshake may try it
	for range 10 {
		mint(t, m, "a")
	}
	if issuer.made.Load() != 2 {
		t.Errorf("%d leaves made, want 2", issuer.made.Load())
	}
	now = until
	if _, err := m.Certificate("a"); err == nil || m.Len() != 0 {
		t.Errorf("an expired issuer: error %v, %d leaves kept; want an error and 0", err, m.Len())
	}
}

type brokenIssuer struct {
	chain []*x509.Certificate
	key   crypto.Signer
}

func (b brokenIssuer) Chain() []*x509.Certificate { return b.chain }
func (b brokenIssuer) Signer() crypto.Signer      { return b.key }

func TestMinterBrokenIssuer(t *testing.T) {
	t.Parallel()
	a := testca.New(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, issuer := range map[string]Issuer{
		"nothing": brokenIssuer{}, "no key": brokenIssuer{chain: a.Chain()}, "no chain": brokenIssuer{key: a.Signer()},
		"another's key": brokenIssuer{a.Chain(), other},
	} {
		if _, err := newTestMinter(t, issuer).Certificate("a"); err == nil || !strings.Contains(err.Error(), "minting for a") {
			t.Errorf("%s: error %v, want one about minting for a", name, err)
		}
	}
}

// slowIssuer has a key that signs only when told to, and may fail.
type slowIssuer struct {
	*testca.Authority
	gate chan error
}

func (s slowIssuer) Signer() crypto.Signer { return slowSigner{s.Authority.Signer(), s.gate} }

type slowSigner struct {
	crypto.Signer
	gate chan error
}

func (s slowSigner) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if err := <-s.gate; err != nil {
		return nil, err
	}
	return s.Signer.Sign(r, digest, opts)
}

// TestMinterSingleFlight checks that all concurrent callers wait for one leaf. A failure is
// returned to all of them and is not kept.
func TestMinterSingleFlight(t *testing.T) {
	t.Parallel()
	a := testca.New(t)
	synctest.Test(t, func(t *testing.T) {
		s := slowIssuer{a, make(chan error)}
		issuer := &counting{Issuer: s}
		m := newTestMinter(t, issuer)
		m.now = func() time.Time { return a.Chain()[0].NotBefore.Add(time.Minute) }
		ask := func(answer error) (failed int) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 50 {
				wg.Go(func() {
					if _, err := m.Certificate("a"); err != nil {
						mu.Lock()
						failed++
						mu.Unlock()
					}
				})
			}
			synctest.Wait()
			s.gate <- answer
			wg.Wait()
			return failed
		}
		if failed := ask(errors.New("no")); failed != 50 || m.Len() != 0 {
			t.Errorf("%d callers got the error, %d leaves kept; want 50 and 0", failed, m.Len())
		}
		if failed := ask(nil); failed != 0 || issuer.made.Load() != 2 {
			t.Errorf("%d callers failed, %d leaves made; want 0 and 2", failed, issuer.made.Load())
		}
	})
}
