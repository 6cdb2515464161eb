package botpage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/origin"
)

const (
	proofPath = "/.well-known/crawlgate-opt-out.txt"
	proofName = "_crawlgate-opt-out."
	// maxProof bounds the file of a proof, in bytes. proofTime bounds the whole check of a proof.
	maxProof  = 1 << 10
	proofTime = 20 * time.Second
)

// unproven is an error that the owner may see. Other errors may reveal the internal network or the
// operator's orders.
type unproven string

func (u unproven) Error() string { return string(u) }

var resolver = &net.Resolver{PreferGo: true}

// prover checks the proofs at sites. Its requests do not reveal who asked.
type prover struct {
	transport http.RoundTripper // connects to public addresses only
	userAgent string
	forbidden func(origin.Origin) error // why the operator forbids requests there
	lookupTXT func(ctx context.Context, name string) ([]string, error)
}

// prove returns an error unless a host shows a token in the way that its owner has chosen.
func (p prover) prove(ctx context.Context, host, token, how string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	shown := make([]string, 1)
	if how == "dns" {
		shown, err = p.lookupTXT(ctx, proofName+host+".")
	} else {
		shown[0], err = p.file(ctx, origin.Origin{Scheme: "https", Host: host, Port: 443})
		// A host without https accepts no connection on its port. A failure of TLS, or of an upstream
		// proxy, is no reason to fall back to http.
		if failed, ok := errors.AsType[*egress.DialError](err); ok && failed.Phase == egress.PhaseConnect {
			shown[0], err = p.file(ctx, origin.Origin{Scheme: "http", Host: host, Port: 80})
		}
	}
	if err != nil {
		return fmt.Errorf("looking for a proof: %w", err)
	}
	if !slices.ContainsFunc(shown, func(text string) bool { return strings.TrimSpace(text) == token }) {
		return unproven("There is something else instead of the token.")
	}
	return nil
}

// file reads the file of a proof. It follows no redirect.
func (p prover) file(ctx context.Context, o origin.Origin) (string, error) {
	if err := p.forbidden(o); err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.String()+proofPath, http.NoBody)
	if err != nil {
		return "", err
	}
	r.Header.Set("User-Agent", p.userAgent)
	resp, err := p.transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // only the part that was read matters
	if resp.StatusCode != http.StatusOK {
		return "", unproven(fmt.Sprintf("%s answered %d. It must answer 200, without a redirect.", o, resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProof+1))
	if len(body) > maxProof {
		return "", unproven("The file is too long: it must contain the token and nothing else.")
	}
	return string(body), err
}
