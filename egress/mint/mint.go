// Package mint makes the certificates of intercepted hosts.
package mint

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of [Config].
const (
	// DefaultLeafLifetime is how long a leaf is valid, unless its issuer ends sooner.
	DefaultLeafLifetime = 48 * time.Hour
	// DefaultLeaves bounds the leaves kept; each takes about 1 KiB.
	DefaultLeaves = 10_000
	// leafBackdate is how far a leaf reaches back, for clients whose clocks are behind.
	leafBackdate = time.Hour
	// maxCommonName is X.520's bound. A longer host stands in the SAN alone.
	maxCommonName = 64
)

// Issuer is the authority that signs leaves. It may be renewed at any time. Both methods are called
// for each leaf, and may answer for different generations; the [Minter] notices this and asks
// again.
type Issuer interface {
	// Chain returns the issuing certificate first and then those above it that clients need to be
	// sent, without the root.
	Chain() []*x509.Certificate
	// Signer returns the issuing certificate's key.
	Signer() crypto.Signer
}

// Config configures a [Minter]. Only Issuer is needed.
type Config struct {
	Issuer   Issuer
	Lifetime time.Duration    // of a leaf; 0: DefaultLeafLifetime
	Leaves   int              // kept at most; 0: DefaultLeaves
	Now      func() time.Time // nil: time.Now
}

// Minter makes leaf certificates for hosts that are intercepted, and keeps them. All share one key,
// which is made with each Minter and never stored. A reader of the process's memory could read the
// issuer's key as well, so a key for each host would protect nothing. Safe for concurrent use.
type Minter struct {
	issuer   Issuer
	lifetime time.Duration
	limit    int
	now      func() time.Time
	key      *ecdsa.PrivateKey
	minted   atomic.Int64

	mu     sync.Mutex
	origin []byte           // the issuing certificate that the kept leaves are from
	leaves map[string]*leaf // by host
}

// leaf is a certificate, or one that is being made.
type leaf struct {
	ready chan struct{} // closed when the rest is set
	cert  *tls.Certificate
	renew time.Time
	err   error
}

// due reports whether a leaf is ready and has to be made again.
func (l *leaf) due(now time.Time) bool {
	select {
	case <-l.ready:
		return !now.Before(l.renew)
	default:
		return false
	}
}

// New makes a minter and its key.
func New(c Config) (*Minter, error) {
	if c.Issuer == nil {
		return nil, errors.New("making a minter: no issuer")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a minter: making its key: %w", err)
	}
	m := &Minter{
		issuer: c.Issuer, key: key, now: c.Now, leaves: make(map[string]*leaf),
		lifetime: cmp.Or(max(c.Lifetime, 0), DefaultLeafLifetime),
		limit:    cmp.Or(max(c.Leaves, 0), DefaultLeaves),
	}
	if m.now == nil {
		m.now = time.Now
	}
	return m, nil
}

// Certificate returns the certificate for host, a name in lower case (punycode) or an IP address
// without brackets. It is made once for all concurrent callers, and again when two thirds of its
// life are over or the issuer has changed.
func (m *Minter) Certificate(host string) (*tls.Certificate, error) {
	var issuer []byte
	if chain := m.issuer.Chain(); len(chain) > 0 {
		issuer = chain[0].Raw
	}
	l, mine := m.claim(host, issuer)
	if !mine {
		<-l.ready
		return l.cert, l.err
	}
	defer close(l.ready)
	if l.cert, l.renew, l.err = m.mint(host); l.err != nil {
		l.err = fmt.Errorf("minting for %s: %w", host, l.err)
		m.forget(host, l)
	}
	return l.cert, l.err
}

// Minted counts the certificates made.
func (m *Minter) Minted() int64 { return m.minted.Load() }

// Len counts the certificates kept.
func (m *Minter) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leaves)
}

// authority reads the issuer's chain and key of one generation.
func (m *Minter) authority() ([]*x509.Certificate, crypto.Signer, error) {
	for range 2 {
		chain, signer := m.issuer.Chain(), m.issuer.Signer()
		if len(chain) == 0 || signer == nil {
			return nil, nil, errors.New("the issuer has no certificate or no key")
		}
		key, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
		if ok && key.Equal(chain[0].PublicKey) {
			return chain, signer, nil
		}
	}
	return nil, nil, errors.New("the issuer's key does not belong to its certificate")
}

// claim returns the leaf of a host, or begins one, which the caller must then make. Leaves of
// another issuer than the given one are dropped. Beyond the limit an arbitrary leaf is dropped:
// making it again costs less than keeping an order.
func (m *Minter) claim(host string, issuer []byte) (l *leaf, mine bool) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.Equal(m.origin, issuer) {
		m.origin = issuer
		clear(m.leaves)
	}
	if known, ok := m.leaves[host]; ok && !known.due(now) {
		return known, false
	}
	delete(m.leaves, host)
	for other := range m.leaves {
		if len(m.leaves) < m.limit {
			break
		}
		delete(m.leaves, other)
	}
	l = &leaf{ready: make(chan struct{})}
	m.leaves[host] = l
	return l, true
}

func (m *Minter) forget(host string, l *leaf) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaves[host] == l {
		delete(m.leaves, host)
	}
}

// mint makes a certificate. renew is when another is due.
func (m *Minter) mint(host string) (cert *tls.Certificate, renew time.Time, err error) {
	chain, signer, err := m.authority()
	if err != nil {
		return nil, time.Time{}, err
	}
	now := m.now()
	from, until := now.Add(-leafBackdate), now.Add(m.lifetime)
	if issuer := chain[0]; from.Before(issuer.NotBefore) {
		from = issuer.NotBefore
	}
	if issuer := chain[0]; until.After(issuer.NotAfter) {
		until = issuer.NotAfter
	}
	if !now.Before(until) {
		return nil, time.Time{}, fmt.Errorf("the issuer's certificate has expired on %s", until.UTC().Format(time.RFC3339))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("drawing a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(1)), // RFC 5280 section 4.1.2.2: positive, at most 20 bytes
		NotBefore:             from,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if len(host) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: host}
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, chain[0], m.key.Public(), signer)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("signing: %w", err)
	}
	m.minted.Add(1)
	raw := make([][]byte, 0, 1+len(chain))
	raw = append(raw, der)
	for _, c := range chain {
		raw = append(raw, c.Raw)
	}
	return &tls.Certificate{Certificate: raw, PrivateKey: m.key}, now.Add(until.Sub(now) * 2 / 3), nil
}
