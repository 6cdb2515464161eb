package proxy

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddypki"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/egress/mint"
	"github.com/crawlgate/crawlgate/engine"
)

// authorityID is the id of the gateway's own certificate authority in Caddy's pki app. To give it
// another name, or a root and intermediate of the company, configure a CA of this id there.
const authorityID = "robots"

// loadAuthority returns the certificate authority that signs for intercepted hosts, and makes it on
// first use. It is never added to the system's trust store: the clients must trust it, but the
// gateway's machine does not need to.
func loadAuthority(ctx caddy.Context, logger *zap.Logger) (*authority, error) {
	_, err := ctx.AppIfConfigured("pki")
	configured := !errors.Is(err, caddy.ErrNotConfigured)
	pki, err := engine.App[*caddypki.PKI]("pki", ctx.App)
	if err != nil {
		return nil, err
	}
	if !configured {
		// Without a configured CA, the app has just made Caddy's own one, and would install it in the
		// system's trust store. Caddy makes it again when another part needs it.
		delete(pki.CAs, caddypki.DefaultCAID)
	}
	never := false
	ca, ok := pki.CAs[authorityID]
	if !ok {
		for id := range pki.CAs {
			if id != caddypki.DefaultCAID { // perhaps its name is mistyped
				logger.Warn("pki has a ca, but none with the name robots: the gateway makes its own, which clients must trust", zap.String("ca", id))
			}
		}
		ca = &caddypki.CA{
			Name: "Crawlgate", RootCommonName: "Crawlgate Root CA", IntermediateCommonName: "Crawlgate Intermediate CA",
			InstallTrust: &never,
		}
		if err := ca.Provision(ctx, authorityID, logger); err != nil {
			return nil, fmt.Errorf("making the certificate authority %q: %w", authorityID, err)
		}
		pki.CAs[authorityID] = ca // the app renews it, and serves its root from the admin endpoint
	}
	if ca.InstallTrust == nil {
		ca.InstallTrust = &never
	}
	return &authority{ca: ca}, backdateRoot(ctx, ca, logger)
}

// backdateRoot backdates a root that Caddy has just made and that no client can know yet. Caddy
// starts it "now" and has no option for that. A CA with its own storage is not changed.
func backdateRoot(ctx caddy.Context, ca *caddypki.CA, logger *zap.Logger) error {
	root := ca.RootCertificate()
	if ca.Root != nil || ca.StorageRaw != nil || time.Since(root.NotBefore) > time.Minute {
		return nil
	}
	key, err := ca.RootKey()
	if err != nil {
		return fmt.Errorf("reading the key of the new root certificate: %w", err)
	}
	if root, err = backdate(root, root, key); err != nil {
		return fmt.Errorf("dating the new root certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})
	if err := ctx.Storage().Store(ctx, "pki/authorities/"+authorityID+"/root.crt", text); err != nil {
		return fmt.Errorf("storing the new root certificate: %w", err)
	}
	return ca.Provision(ctx, authorityID, logger) // reads the new root
}

// backdate reissues a CA's certificate, with the same key and a new serial number, for clients
// whose clocks are behind.
func backdate(cert, parent *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	template := *cert
	template.SerialNumber = nil // a random one
	template.NotBefore = cert.NotBefore.Add(-mint.Backdate)
	if parent != cert && template.NotBefore.Before(parent.NotBefore) {
		template.NotBefore = parent.NotBefore
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, cert.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// authority lets egress sign with a CA. The pki app renews the intermediate in the background, so
// authority gets it for each signature. The race detector may report the two, because Caddy's
// methods take the CA by value, and copy it before they lock. The race is harmless: Caddy renews
// chains of one certificate and keys of one type, and egress checks that chain and key belong
// together.
type authority struct {
	ca *caddypki.CA

	mu    sync.Mutex
	of    *x509.Certificate   // the intermediate that Caddy made
	chain []*x509.Certificate // as sent to clients
}

// Chain implements mint.Issuer. It backdates an intermediate that Caddy made, if the root's key can
// be read.
func (a *authority) Chain() []*x509.Certificate {
	chain := a.ca.IntermediateCertificateChain()
	if a.ca.Intermediate != nil || len(chain) == 0 {
		return chain
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == chain[0] {
		return a.chain
	}
	a.of, a.chain = chain[0], chain
	if key, err := a.ca.RootKey(); err == nil {
		if early, err := backdate(chain[0], a.Root(), key); err == nil {
			a.chain = append([]*x509.Certificate{early}, chain[1:]...)
		}
	}
	return a.chain
}

// Signer implements mint.Issuer.
func (a *authority) Signer() crypto.Signer { return a.ca.IntermediateKey() }

// Root returns the certificate that clients have to trust.
func (a *authority) Root() *x509.Certificate { return a.ca.RootCertificate() }

// Certificates returns the current root and signing intermediate, by name.
func (a *authority) Certificates() map[string]*x509.Certificate {
	certificates := map[string]*x509.Certificate{"root": a.Root()}
	if chain := a.Chain(); len(chain) > 0 {
		certificates["intermediate"] = chain[0]
	}
	return certificates
}
