package enforce

import (
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// Signing says how the requests of an agent are signed.
type Signing struct {
	// Keys is the file with the agent's keys, as `crawlgate robots keygen` writes it. No other agent
	// may have one of them. Required.
	Keys string `json:"keys"`
	// Directory is the origin where sites find the public keys: https, without a path. Required.
	Directory string `json:"directory"`
	// StringHosts are patterns of hosts that get the string form of Signature-Agent. Default: none.
	StringHosts []string `json:"string_hosts,omitempty"`
}

// Signature says how a request was signed. The zero value is for an agent that does not sign.
type Signature struct {
	Key  string // the thumbprint; empty without a signature
	Form webbotauth.AgentForm
	// Unsigned says why the request of an agent that signs has no signature.
	Unsigned string
}

// The values of [Signature.Unsigned].
const (
	UnsignedScheme = "scheme" // only https is signed
	UnsignedNoKey  = "no_key" // no key of the agent signs now
	UnsignedTunnel = "tunnel" // nobody but the client sees the requests in the tunnel
	// UnsignedEgressOff is for a request that the next handler sends.
	UnsignedEgressOff = "egress_off"
)

// AskedAs returns the first agent in whose name sites are asked for robots.txt with a product
// token, or nil.
func (id *Identifier) AskedAs(token string) *Agent {
	for _, a := range id.agents {
		if a.sends == token {
			return a
		}
	}
	return nil
}

// compileSent checks what the agent's requests say about it.
func (a *Agent) compileSent() error {
	a.fields = make(http.Header)
	if text := a.SendUserAgent; text != "" {
		first := robotstxt.ProductToken(text)
		switch {
		case len(text) > maxPattern:
			return tooLong("send_user_agent", text, maxPattern)
		case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(text) != text:
			return fmt.Errorf("send_user_agent %q: has characters that a header cannot carry", text)
		case !containsFold(a.robots.Tokens, first):
			return fmt.Errorf("send_user_agent %q: its first product is none of the agent's tokens (%s): "+
				"a site could not tell which group of its robots.txt is meant", text, strings.Join(a.robots.Tokens, ", "))
		}
		a.sends = first
		a.fields["User-Agent"] = []string{text}
	}
	if text := a.SendFrom; text != "" {
		if address, err := mail.ParseAddress(text); err != nil || address.Address != text || len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
			return fmt.Errorf("send_from %q: want an address such as crawl@example.com", escape.Cut(text, maxText))
		}
		a.fields["From"] = []string{text}
	}
	return a.compileSigning()
}

func (a *Agent) compileSigning() error {
	if a.Sign == nil {
		return nil
	}
	directory, err := webbotauth.ParseDirectory(a.Sign.Directory)
	var o origin.Origin
	if err == nil {
		o, err = origin.Parse(directory)
	}
	switch {
	case a.Sign.Keys == "" || a.Sign.Directory == "":
		return errors.New("sign: want keys, a file, and directory, an origin")
	case err != nil:
		return fmt.Errorf("sign: %w", err)
	case a.Passes(PassSignature):
		return errors.New("sign and pass signature exclude each other: a request has one signature")
	}
	if err := a.stringForm.add(a.Sign.StringHosts, struct{}{}); err != nil {
		return fmt.Errorf("sign: string: %w", err)
	}
	a.Signer = &webbotauth.Signer{Directory: o.String(), Keys: func() webbotauth.Keys { return nil }}
	return nil
}
