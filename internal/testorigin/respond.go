package testorigin

import (
	"fmt"
	"net/http"
	"slices"
)

// Response is a correct HTTP response. Date, Content-Type (plain text in UTF-8)
// and Content-Length are filled in where Header lacks them.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Respond answers with r. What it means follows from the status as in RFC 9309
// section 2.3.1; 429 counts with the server errors (seed 000).
func Respond(r Response) Behaviour {
	r.Header, r.Body = r.Header.Clone(), slices.Clone(r.Body)
	b := Behaviour{
		Name:    fmt.Sprintf("status %d", r.Status),
		Meaning: meaningOf(r.Status, r.Header.Get("Location") != ""),
		serve:   func(s *session) error { return s.respond(r) },
	}
	if b.Meaning == MeansRules && bodyAllowed(r.Status) {
		b.Rules = r.Body
	}
	return b
}

// OK answers 200 with rules.
func OK(rules string) Behaviour {
	return Respond(Response{Status: http.StatusOK, Body: []byte(rules)})
}

// Status answers with a status and a body that is no rule. After a status below
// 200 no final one follows.
func Status(status int) Behaviour {
	return Respond(Response{Status: status, Body: []byte(reasonPhrase(status) + "\n")})
}

// Redirect answers with a redirect; location goes out as it is: absolute,
// relative, to a site of another scheme or host, to itself, or nonsense. A loop
// or a scheme without robots.txt means absent: change Meaning for these.
func Redirect(status int, location string) Behaviour {
	b := Respond(Response{Status: status, Header: http.Header{"Location": {location}}})
	b.Name = fmt.Sprintf("redirect %d to %s", status, location)
	return b
}

// RedirectLoop redirects robots.txt to itself.
func RedirectLoop() Behaviour {
	b := Redirect(http.StatusFound, robotsPath)
	b.Name, b.Meaning = "redirect loop", MeansAbsent
	return b
}

// meaningOf is RFC 9309 section 2.3.1 over statuses.
func meaningOf(status int, hasLocation bool) Meaning {
	switch {
	case 200 <= status && status < 300:
		return MeansRules
	case 300 <= status && status < 400 && hasLocation:
		return MeansRedirect
	case 300 <= status && status < 500 && status != http.StatusTooManyRequests:
		return MeansAbsent
	default:
		return MeansUnreachable
	}
}
