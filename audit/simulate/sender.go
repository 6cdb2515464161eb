package simulate

import (
	"encoding/base64"
	"net/netip"
	"strings"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/escape"
)

// senders returns the possible senders of a line's request: one, or one for each account or
// certificate that it may have used.
func (s *Simulator) senders(l *audit.Line, source netip.Addr) ([]enforce.Sender, Uncomputed) {
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

// maxUserAgent is how many bytes of a User-Agent the robots object keeps.
const maxUserAgent = 500

// userAgentOf returns the User-Agent of a request, and false if the log has changed it.
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

// none is the account, or the certificate, of a request without one.
var none = []string{""}

// users returns the accounts that a request may have used, and false if they are unknown.
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
		return nil, false // it came through a tunnel, which any account may have opened
	case by:
		users = s.agent(r.Agent).Credentials
		return users, len(users) > 0
	}
	return none, !given
}

// certificateNames returns the names that the client's certificate may have had, and false if they
// are unknown.
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

// agent returns the configuration of an agent, or an empty one if the name is unknown.
func (s *Simulator) agent(name string) enforce.Agent {
	if id, ok := s.cfg.Policy.Identifier.Named(name); ok && id.Config != nil {
		return *id.Config
	}
	return enforce.Agent{}
}
