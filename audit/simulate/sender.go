package simulate

import (
	"encoding/base64"
	"net/netip"
	"strings"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/escape"
)

// senders returns what the request of a line may have shown of its sender: one, or one for each
// account or certificate that it may have had.
func (s *Simulator) senders(l *audit.Line, source netip.Addr) ([]enforce.Sender, Cause) {
	userAgent, ok := userAgentOf(l)
	if !ok {
		return nil, CauseUserAgent
	}
	users, known := s.users(l)
	if !known {
		return nil, CauseCredentials
	}
	names, known := s.certificateNames(l)
	if !known {
		return nil, CauseCredentials
	}
	list := make([]enforce.Sender, 0, len(users)*len(names))
	for _, user := range users {
		for _, name := range names {
			e := enforce.Sender{UserAgent: userAgent, Source: source}
			if user != "" {
				e.ProxyAuthorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
			}
			if name != "" {
				e.CertificateNames = []string{name}
			}
			list = append(list, e)
		}
	}
	return list, ""
}

// maxUserAgent is how many bytes of a User-Agent the robots object has in full.
const maxUserAgent = 500

// userAgentOf is the User-Agent of a request. It reports false where the log has changed it.
func userAgentOf(l *audit.Line) (string, bool) {
	recorded := l.Robots.UserAgent
	plain := len(recorded) < maxUserAgent && !strings.Contains(recorded, `\`) && escape.ASCII(recorded, maxUserAgent) == recorded
	if plain && recorded != "" {
		return recorded, true
	}
	if fields := l.Header("User-Agent"); len(fields) > 0 { // the log's filter may have left it out
		shown := enforce.Decision{UserAgent: fields[0]}.Record().UserAgent
		if fits := recorded == "" || recorded == shown; fits && !strings.ContainsRune(fields[0], '\uFFFD') {
			return fields[0], true
		}
	}
	return recorded, plain
}

// none is the account, or the certificate, of a request that shows none.
var none = []string{""}

// users are the accounts by one of which a request may have been sent. It reports false where that
// is not known.
func (s *Simulator) users(l *audit.Line) (users []string, known bool) {
	r := l.Robots
	if !s.credentials {
		return none, true
	}
	given := len(l.Header("Proxy-Authorization")) > 0 // logged as REDACTED
	switch by := strings.Contains(r.IdentifiedBy, "credential"); {
	case r.Reason == enforce.ReasonCredentialsWrong:
		return nil, false
	case r.Reason == enforce.ReasonCredentialsMissing && !given:
		return none, true
	case by && r.Reason == enforce.ReasonAgentMismatch && !given:
		return nil, false // it came through a tunnel, which may have been opened by any account
	case by:
		users = s.agent(r.Agent).Credentials
		return users, len(users) > 0
	}
	return none, !given
}

// certificateNames are the names, one of which the client's certificate may have had.
func (s *Simulator) certificateNames(l *audit.Line) (names []string, known bool) {
	if !s.certificates {
		return none, true
	}
	r := l.Robots
	switch by := strings.Contains(r.IdentifiedBy, "client_certificate"); {
	case by && r.Reason == enforce.ReasonAgentMismatch:
		return nil, false
	case by:
		names = s.agent(r.Agent).ClientCertificates
		return names, len(names) > 0
	}
	return none, !l.Certified()
}

// agent is the configuration of an agent, an empty one if there is none of that name.
func (s *Simulator) agent(name string) enforce.Agent {
	if id, ok := s.cfg.Policy.Identifier.Named(name); ok && id.Config != nil {
		return *id.Config
	}
	return enforce.Agent{}
}
