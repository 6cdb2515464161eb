package enforce

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// Sender is the evidence of a request for its sender's identity.
type Sender struct {
	// UserAgent and ProxyAuthorization are the values of these fields, "" if missing. Several
	// User-Agent fields have to be joined by blanks: the site sees them all.
	UserAgent          string
	ProxyAuthorization string
	// Source is the address of the client. The zero value is in no range.
	Source netip.Addr
	// CertificateNames are the common name and the subject alternative names of the
	// client's certificate, which the caller has verified.
	CertificateNames []string
}

// Identity is the identity of a request's sender. The zero value is unidentified and is refused.
type Identity struct {
	// Agent is the name of the agent, also on most refusals. Without agent blocks it is the
	// product token. May be empty.
	Agent string
	// Config is the agent's configuration, nil if it has none. Not to be changed.
	Config *Agent
	// Robots has the names under which the agent looks for its rules.
	Robots robotstxt.Agent
	// IdentifiedBy is as in [Decision].
	IdentifiedBy string
	// UserAgent is the field's value as received.
	UserAgent string

	acceptance
}

// acceptance tells whether a sender is accepted. The zero value refuses it as unidentified.
type acceptance struct {
	accepted bool
	refusal  Reason
	detail   string
}

// KillName is the name by which the kill switch knows the sender: one without a name is
// known by its product token, so that it can be stopped too.
func (i Identity) KillName() string {
	if i.Agent == "" && len(i.Robots.Tokens) > 0 {
		return i.Robots.Tokens[0]
	}
	return i.Agent
}

// Refused returns the reason for which the sender is not accepted, with a detail for people, and
// whether that is so. A refused [Authentication] cannot be made good by any request inside.
func (a acceptance) Refused() (reason Reason, detail string, refused bool) {
	if a.accepted {
		return "", "", false
	}
	return cmp.Or(a.refusal, ReasonUnidentified), a.detail, true
}

func (i Identity) refuse(r Reason, format string, args ...any) Identity {
	i.acceptance = acceptance{refusal: r, detail: fmt.Sprintf(format, args...)}
	return i
}

// Authentication is the result of checking the sender of a CONNECT: all but its name. The zero
// value is refused. It holds no password.
type Authentication struct {
	acceptance

	user         string   // whose password was right, or ""
	users        []*agent // the agents that name that user
	source       netip.Addr
	certificates []string
	// inner says that the requests judged come from inside an accepted tunnel.
	inner bool
}

// maxAuthorization bounds the bytes of a Proxy-Authorization field that is read.
const maxAuthorization = 4096

// basicCredentials reads the value of a Proxy-Authorization field (RFC 7617 section 2).
// It is strict: a value that is not Basic or not base64, has no colon, or has control characters
// is no credential.
func basicCredentials(field string) (user, password string, ok bool) {
	scheme, encoded, found := strings.Cut(field, " ")
	if !found || len(field) > maxAuthorization || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(strings.Trim(encoded, " "))
	if err != nil || hasControl(string(decoded)) {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(decoded), ":")
	return user, password, ok && user != ""
}
