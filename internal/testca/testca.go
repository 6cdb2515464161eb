// Package testca provides a certificate authority for tests.
package testca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Authority is a root with an intermediate that can be renewed, as in Caddy's PKI.
type Authority struct {
	Root    *x509.Certificate
	rootKey crypto.Signer

	mu    sync.Mutex
	chain []*x509.Certificate
	key   crypto.Signer
	Skew  atomic.Int32 // how many more times Signer returns the previous generation
	old   crypto.Signer
	Asked atomic.Int32 // number of calls of Chain
}

// New creates a root, and an intermediate that is valid for a week.
func New(tb testing.TB) *Authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	a := &Authority{rootKey: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, MaxPathLen: 1,
	}
	a.Root = sign(tb, template, template, key.Public(), key)
	a.Renew(tb, time.Now().Add(-time.Minute), time.Now().Add(7*24*time.Hour))
	return a
}

func sign(tb testing.TB, template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Renew replaces the intermediate.
func (a *Authority) Renew(tb testing.TB, from, until time.Time) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	c := sign(tb, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "intermediate"},
		NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, MaxPathLenZero: true,
	}, a.Root, key.Public(), a.rootKey)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.old, a.chain, a.key = a.key, []*x509.Certificate{c}, key
}

// Chain implements mint.Issuer.
func (a *Authority) Chain() []*x509.Certificate {
	a.Asked.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.chain
}

// Signer implements mint.Issuer.
func (a *Authority) Signer() crypto.Signer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Skew.Add(-1) >= 0 {
		return a.old
	}
	return a.key
}

// Pool returns a pool with the root.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Root)
	return p
}
