package testorigin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// Certificate is a kind of certificate that a site can show.
type Certificate uint8

// CertificateValid must be accepted by clients.
const (
	CertificateValid Certificate = iota
	CertificateExpired
	CertificateNotYetValid
	CertificateSelfSigned
	CertificateWrongHost
)

// String returns the kind in words.
func (c Certificate) String() string {
	switch c {
	case CertificateExpired:
		return "expired"
	case CertificateNotYetValid:
		return "not yet valid"
	case CertificateSelfSigned:
		return "self-signed"
	case CertificateWrongHost:
		return "wrong host"
	default:
		return "valid"
	}
}

// wrongHost is the name in a CertificateWrongHost (RFC 6761: it never resolves).
const wrongHost = "wrong-host.invalid"

// authority is the CA of a server, with one key for all leaf certificates.
type authority struct {
	made    time.Time
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	leafKey *ecdsa.PrivateKey
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "testorigin CA"},
		NotBefore:             now.Add(-365 * 24 * time.Hour),
		NotAfter:              now.Add(365 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{made: now, cert: cert, key: key, leafKey: leafKey}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a certificate for an origin's host. Its validity is relative to when the authority
// was made.
func (a *authority) issue(o origin.Origin, kind Certificate) (*tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2 + int64(kind)),
		Subject:      pkix.Name{CommonName: "testorigin site"},
		NotBefore:    a.made.Add(-24 * time.Hour),
		NotAfter:     a.made.Add(90 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if addr, ok := o.Addr(); ok {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{o.Host}
	}
	parent, signer := a.cert, a.key
	switch kind {
	case CertificateExpired:
		template.NotAfter = a.made.Add(-time.Hour)
	case CertificateNotYetValid:
		template.NotBefore = a.made.Add(60 * 24 * time.Hour)
	case CertificateSelfSigned:
		parent, signer = template, a.leafKey
	case CertificateWrongHost:
		template.IPAddresses, template.DNSNames = nil, []string{wrongHost}
	case CertificateValid:
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, a.leafKey.Public(), signer)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}, nil
}

// certificate returns the site's certificate of a kind, which is made on first use.
func (s *Site) certificate(kind Certificate) (*tls.Certificate, error) {
	s.certMu.Lock()
	defer s.certMu.Unlock()
	if cert := s.certs[kind]; cert != nil {
		return cert, nil
	}
	cert, err := s.server.authority.issue(s.origin, kind)
	if err != nil {
		return nil, err
	}
	s.certs[kind] = cert
	return cert, nil
}
