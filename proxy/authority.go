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

// loadAuthority gives the certificate authority that signs for intercepted hosts, making it on
// first use. It is never put into the system's trust store: a machine that runs the gateway need
// not trust it, its clients must.
func loadAuthority(ctx caddy.Context, logger *zap.Logger) (*authority, error) {
	_, err := ctx.AppIfConfigured("pki")
	configured := !errors.Is(err, caddy.ErrNotConfigured)
	pki, err := engine.App[*caddypki.PKI]("pki", ctx.App)
	if err != nil {
		return nil, err
	}
	if !configured {
		// The app has just made Caddy's own CA because nobody asked for any, and would install that in
		// the system's trust store. Caddy makes it again when another part asks for it.
		delete(pki.CAs, caddypki.DefaultCAID)
	}
	never := false
	ca, ok := pki.CAs[authorityID]
	if !ok {
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

// backdateRoot lets a root begin earlier that Caddy has just made, and that no client can know yet.
// Caddy dates it "now", and has no option. A CA with a storage of its own is left as it is.
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
	return ca.Provision(ctx, authorityID, logger) // which reads it
}

// backdate issues a certificate of a CA again, with the same key and another serial number, for
// clients whose clocks are behind.
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
// it is asked for at each signature. The race detector can see the two meet, as Caddy's methods
// take the CA by value, which is a copy made before they lock. It does no harm: Caddy renews chains
// of one certificate and keys of one type, and egress checks that chain and key belong together.
type authority struct {
	ca *caddypki.CA

	mu    sync.Mutex
	of    *x509.Certificate   // the intermediate that Caddy made
	chain []*x509.Certificate // as clients are sent it
}

// Chain implements mint.Issuer. An intermediate that Caddy made begins earlier than Caddy dates it,
// as long as the root's key can be read.
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

// Root is the certificate that clients have to trust.
func (a *authority) Root() *x509.Certificate { return a.ca.RootCertificate() }

// Certificates are the root and the intermediate that signs, by their names, as they are now.
func (a *authority) Certificates() map[string]*x509.Certificate {
	certificates := map[string]*x509.Certificate{"root": a.Root()}
	if chain := a.Chain(); len(chain) > 0 {
		certificates["intermediate"] = chain[0]
	}
	return certificates
}
