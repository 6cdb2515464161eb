package proxy

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddypki"
	"go.uber.org/zap"

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
	return &authority{ca}, nil
}

// authority lets egress sign with a CA. The pki app renews the intermediate in the background, so
// it is asked for at each signature. The race detector can see the two meet, as Caddy's methods
// take the CA by value, which is a copy made before they lock. It does no harm: what is renewed are
// chains of one certificate and keys of one type, and egress looks whether the one belongs to the
// other.
type authority struct{ ca *caddypki.CA }

// Chain implements mint.Issuer.
func (a *authority) Chain() []*x509.Certificate { return a.ca.IntermediateCertificateChain() }

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
