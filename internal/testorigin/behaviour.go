package testorigin

import (
	"errors"
	"time"
)

// Meaning is what a crawler has to make of a robots.txt answer by RFC 9309
// section 2.3.1. It is what an oracle expects of the code under test, written
// down here without any of that code.
type Meaning uint8

const (
	// MeansUnreachable is section 2.3.1.4: complete disallow. So is every answer
	// that is none, or not to be read to its end.
	MeansUnreachable Meaning = iota
	// MeansRules is section 2.3.1.1: Behaviour.Rules decide.
	MeansRules
	// MeansAbsent is section 2.3.1.3: the site sets no rules.
	MeansAbsent
	// MeansRedirect is section 2.3.1.2: it depends on where the redirect leads.
	MeansRedirect
)

// String returns "unreachable", "rules", "absent" or "redirect".
func (m Meaning) String() string {
	switch m {
	case MeansRules:
		return "rules"
	case MeansAbsent:
		return "absent"
	case MeansRedirect:
		return "redirect"
	default:
		return "unreachable"
	}
}

// Behaviour is how a site answers. It is an immutable value that many sites and
// connections may share; Name, Meaning and Rules may be changed in a copy before
// it is put in force. The zero value stands for none.
type Behaviour struct {
	// Name tells behaviours apart in records.
	Name string
	// Meaning is what a crawler has to conclude from it as a robots.txt. Where
	// that hangs on the crawler's patience or limits, the doc of the constructor
	// says so.
	Meaning Meaning
	// Rules is the decoded text that a crawler has in hand, for MeansRules.
	Rules []byte

	where     stage
	cert      Certificate
	handshake func(*session) error // instead of TLS; nil: TLS with cert
	serve     func(*session) error
}

// stage is where in a connection's life a behaviour shows.
type stage uint8

const (
	atRequest stage = iota
	atHandshake
	atDial
)

// NeedsTLS reports whether only an https site can behave so.
func (b Behaviour) NeedsTLS() bool { return b.where == atHandshake }

// errOtherHandshake ends a connection that was made before the behaviour in
// force, which would have spoilt it.
var errOtherHandshake = errors.New("the connection is older than the behaviour")

// After returns b with a wait of d before the first octet of each answer.
// Whether a crawler still gets to see b is a matter of its time limits.
func (b Behaviour) After(d time.Duration) Behaviour {
	mustBeHTTP(b)
	serve := b.serve
	b.Name += " after " + d.String()
	b.serve = func(s *session) error {
		if err := s.wait(d); err != nil {
			return err
		}
		return serve(s)
	}
	return b
}

// Refuse is a host on which nothing listens: connections are refused.
func Refuse() Behaviour {
	return Behaviour{Name: "refuse connections", where: atDial, serve: (*session).reset}
}
