// Package mint makes the certificates of intercepted hosts.
package mint

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// leafLifetime is how long a leaf is valid, unless its issuer expires sooner.
	leafLifetime = 48 * time.Hour
	// MaxLeaves bounds the leaves that a [Minter] keeps; each takes about 1 KiB.
	MaxLeaves = 10_000
	// Backdate is how far a certificate reaches back, for clients whose clocks are behind.
	Backdate = 24 * time.Hour
	// maxCommonName is X.520's bound. A longer host is in the SAN only.
	maxCommonName = 64
)

// Issuer is the authority that signs leaves. It may be renewed at any time. Both methods are called
// for each leaf, and may answer for different generations; the [Minter] notices this and asks
// again.
type Issuer interface {
	// Chain returns the issuing certificate, and after it those above it that clients need to be sent,
	// without the root.
	Chain() []*x509.Certificate
	// Signer returns the issuing certificate's key.
	Signer() crypto.Signer
}

// Minter makes leaf certificates for hosts that are intercepted, and keeps them. All share one key,
// which is made with each Minter and never stored. A key for each host would protect nothing,
// because a reader of the process's memory could read the issuer's key as well. A Minter is safe
// for concurrent use.
type Minter struct {
	issuer Issuer
	key    *ecdsa.PrivateKey
	now    func() time.Time
	limit  int
	making singleflight.Group // by host

	mu     sync.Mutex
	origin []byte          // the issuing certificate that the kept leaves are from
	leaves map[string]leaf // by host
}

// leaf is a certificate, and the time when it is due for renewal.
type leaf struct {
	cert  *tls.Certificate
	renew time.Time
}

// New makes a minter and its key.
func New(issuer Issuer) (*Minter, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a minter: making its key: %w", err)
	}
	return &Minter{issuer: issuer, key: key, now: time.Now, limit: MaxLeaves, leaves: make(map[string]leaf)}, nil
}

// Certificate returns the certificate for host, a name in lower case (punycode) or an IP address
// without brackets. It makes the certificate once for all concurrent callers, and again when two
// thirds of its life are over or the issuer has changed.
func (m *Minter) Certificate(host string) (*tls.Certificate, error) {
	var issuer []byte
	if chain := m.issuer.Chain(); len(chain) > 0 {
		issuer = chain[0].Raw
	}
	cert, err, _ := m.making.Do(host, func() (any, error) {
		if cert := m.kept(host, issuer); cert != nil {
			return cert, nil
		}
		l, err := m.mint(host)
		if err != nil {
			return nil, fmt.Errorf("minting for %s: %w", host, err)
		}
		m.keep(host, l)
		return l.cert, nil
	})
	if err != nil {
		return nil, err
	}
	return cert.(*tls.Certificate), nil //nolint:forcetypeassert // returned above
}

// Len returns the number of certificates kept.
func (m *Minter) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leaves)
}

// authority returns the issuer's chain and key, both of one generation.
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

// kept returns the certificate that is kept for a host, or nil. It drops a certificate that is due
// for renewal, and all certificates of other issuers.
func (m *Minter) kept(host string, issuer []byte) *tls.Certificate {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.Equal(m.origin, issuer) {
		m.origin = issuer
		clear(m.leaves)
	}
	if l := m.leaves[host]; now.Before(l.renew) {
		return l.cert
	}
	delete(m.leaves, host)
	return nil
}

// keep keeps a leaf, unless its issuer has been renewed since. Beyond the limit it drops an
// arbitrary leaf: to make that one again costs less than to keep an order.
func (m *Minter) keep(host string, l leaf) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.Equal(l.cert.Certificate[1], m.origin) {
		return
	}
	for other := range m.leaves {
		if len(m.leaves) < m.limit {
			break
		}
		delete(m.leaves, other)
	}
	m.leaves[host] = l
}

func (m *Minter) mint(host string) (leaf, error) {
	chain, signer, err := m.authority()
	if err != nil {
		return leaf{}, err
	}
	now := m.now()
	from, until := now.Add(-Backdate), now.Add(leafLifetime)
	if issuer := chain[0]; from.Before(issuer.NotBefore) {
		from = issuer.NotBefore
	}
	if issuer := chain[0]; until.After(issuer.NotAfter) {
		until = issuer.NotAfter
	}
	if !now.Before(until) {
		return leaf{}, fmt.Errorf("the issuer's certificate expired on %s", until.UTC().Format(time.RFC3339))
	}
	template := &x509.Certificate{ // with a random serial number
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
		return leaf{}, fmt.Errorf("signing: %w", err)
	}
	raw := make([][]byte, 0, 1+len(chain))
	raw = append(raw, der)
	for _, c := range chain {
		raw = append(raw, c.Raw)
	}
	return leaf{&tls.Certificate{Certificate: raw, PrivateKey: m.key}, now.Add(until.Sub(now) * 2 / 3)}, nil
}
