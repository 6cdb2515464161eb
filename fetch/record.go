package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// State is the state of knowledge about the robots.txt of an origin. The zero value, and every
// undeclared value, permits nothing.
type State uint8

const (
	// StateUnknown means that the file was never asked for.
	StateUnknown State = iota
	// StateRules means that there is a file; Record.Body is its text.
	StateRules
	// StateAbsent means that the site says it has none.
	StateAbsent
	// StateUnreachable means that the latest attempts got no valid answer.
	StateUnreachable
)

// String returns "unknown", "rules", "absent" or "unreachable".
func (s State) String() string { return NameOf(s, "unknown", "rules", "absent", "unreachable") }

// NameOf returns the name of a value of a set, by its number; the first one for any that is not in
// it.
func NameOf[T ~uint8](v T, names ...string) string {
	if int(v) >= len(names) {
		v = 0
	}
	return names[v]
}

// Record is everything known about the robots.txt of one origin: the answer in force and the run of
// failures since. [Policy.Next] makes each record from its predecessor; no other code needs to
// change one. A record holds only facts. [Policy.Access] says what they permit, so a changed policy
// needs no new fetch.
//
// The JSON of a record omits the body, which stores keep under its hash. Until [Record.SetBody]
// restores it, [Policy.Access] treats the record as one without a copy, and refuses requests that
// its rules would decide.
//
// A record holds at most one body: Body in StateRules, LastGood's in StateUnreachable. Bodies are
// shared between records and must not be changed. The zero Record permits nothing.
type Record struct {
	// Origin is the scheme, host and port that the rules are for.
	Origin origin.Origin `json:"origin"`
	// Agent is the product token in whose name robots.txt was fetched, because the site rejected the
	// gateway's own. It is empty for the gateway's own.
	Agent string `json:"fetched_as,omitzero"`
	// State is "rules", "absent" or "unreachable".
	State State `json:"state"`
	// Cause says why the state is not "rules", as in docs/status-table.md.
	Cause Cause `json:"cause,omitzero"`
	// Detail says more about the cause to a human. Do not parse it.
	Detail string `json:"detail,omitzero"`
	// Status is the HTTP status of the last answer.
	Status int `json:"status,omitzero"`
	// Hops are the URLs that redirects led to.
	Hops []string `json:"hops,omitempty"`
	Body []byte   `json:"-"` // the present text, in StateRules only
	// SHA256 is the hash of the current text, in the state "rules" only.
	SHA256 Sum `json:"sha256,omitzero"`
	// Truncated says that the file is longer than the part that is kept.
	Truncated bool `json:"truncated,omitzero"`
	// FetchedAt is when the answer that counts was fetched. If the state is "unreachable", it is the
	// last attempt.
	FetchedAt time.Time `json:"fetched_at,omitzero"`
	// FreshUntil is when the answer has to be fetched again. It is empty if the state is
	// "unreachable".
	FreshUntil time.Time `json:"fresh_until,omitzero"`
	// UnreachableSince is the first failure of the unbroken run, zero if the last attempt was good. It
	// may be set while an older good answer is still valid.
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	// Attempts is the number of failures of that run. A retrieval with two tries counts twice.
	Attempts int `json:"attempts,omitzero"`
	// NextAttempt is the earliest time for another attempt after a failure.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// LastFailure is the latest failure of that run. A record in state "rules" may have one: a failure
	// does not degrade an answer before its time is over.
	LastFailure Failure `json:"last_failure,omitzero"`
	// LastGood is the copy that was in force before the run, only in the state "unreachable". It is
	// empty if there was none, or if the site's last good answer was that it has no file.
	LastGood *Copy `json:"last_good,omitzero"`
}

// Key names a record: an origin, and the agent in whose name its robots.txt was fetched.
type Key struct {
	Origin origin.Origin
	// Agent is the product token that was sent as User-Agent, or empty for the gateway's own. It
	// satisfies robotstxt.IsProductName.
	Agent string
}

// String returns the origin, followed by a space and the agent if there is one. So the records of
// an origin are adjacent in the order of keys, with the gateway's own record first.
func (k Key) String() string {
	if k.Agent == "" {
		return k.Origin.String()
	}
	return k.Origin.String() + " " + k.Agent
}

// Key returns the name of the record.
func (r *Record) Key() Key { return Key{r.Origin, r.Agent} }

// Copy is the text of a robots.txt with its date.
type Copy struct {
	Body []byte `json:"-"`
	// SHA256 is the hash of the text.
	SHA256 Sum `json:"sha256"`
	// FetchedAt is when it was fetched.
	FetchedAt time.Time `json:"fetched_at"`
	// Truncated says that the file is longer than the part that is kept.
	Truncated bool `json:"truncated,omitzero"`
}

// Failure is one attempt that got no valid answer.
type Failure struct {
	// At is when the attempt failed.
	At time.Time `json:"at,omitzero"`
	// Cause says why, as in docs/status-table.md.
	Cause Cause `json:"cause,omitzero"`
	// Detail says more to a human. Do not parse it.
	Detail string `json:"detail,omitzero"`
	// Status is the HTTP status of the answer.
	Status int `json:"status,omitzero"`
	// Hops are the URLs that redirects led to.
	Hops []string `json:"hops,omitempty"`
}

// IsZero reports whether there was no failure.
func (f Failure) IsZero() bool {
	return f.At.IsZero() && f.Cause == "" && f.Detail == "" && f.Status == 0 && len(f.Hops) == 0
}

// Text returns the one body that the record holds, if any: the present text, or the last good copy.
// It must be compiled if [Policy.Access] says AccessRules or AccessLastGood.
func (r Record) Text() (Copy, bool) {
	switch {
	case r.State == StateRules:
		return Copy{Body: r.Body, SHA256: r.SHA256, FetchedAt: r.FetchedAt, Truncated: r.Truncated}, true
	case r.State == StateUnreachable && r.LastGood != nil:
		return *r.LastGood, true
	default:
		return Copy{}, false
	}
}

// emptySHA256 is the hash of no bytes.
var emptySHA256 Sum = sha256.Sum256(nil)

// whole reports whether the body for a hash is present. If a store lost a body, its rules must not
// become the rules of an empty file.
func whole(body []byte, sum *Sum) bool {
	return len(body) > 0 || *sum == emptySHA256
}

// hasText reports whether the record has a body, and it is there.
func (r *Record) hasText() bool {
	text, ok := r.Text()
	return ok && whole(text.Body, &text.SHA256)
}

// Sum is the SHA-256 of a text. As text it is hexadecimal.
type Sum [sha256.Size]byte

// Hex returns the hash in hexadecimal, "" for the zero value. (As a String method it would change
// what %x prints.)
func (s Sum) Hex() string {
	if s == (Sum{}) {
		return ""
	}
	var text [2 * len(s)]byte // on the stack
	hex.Encode(text[:], s[:])
	return string(text[:])
}

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(s)) {
		return fmt.Errorf("a SHA-256 of %d digits", len(text))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	for n := StateUnknown; n <= StateUnreachable; n++ {
		if n.String() == string(text) {
			*s = n
			return nil
		}
	}
	return fmt.Errorf("no state %.20q", text)
}

// SetBody restores the body of a decoded record. It accepts only the body whose hash is in
// [Record.Text], and none if the record has no text.
func (r *Record) SetBody(body []byte) error {
	text, ok := r.Text()
	switch {
	case !ok:
		return fmt.Errorf("setting the body of %s: a record in state %s has none", r.Origin, r.State)
	case sha256.Sum256(body) != text.SHA256:
		return fmt.Errorf("setting the body of %s: its SHA-256 is not %x", r.Origin, text.SHA256)
	case r.State == StateRules:
		r.Body = body
	default:
		text.Body = body // in a copy of the copy, which other records may share
		r.LastGood = &text
	}
	return nil
}

// Check reports a contradiction in a record. No transition makes one, so it is a sign of a defect,
// or of a stored record that somebody has changed. No store accepts or returns such a record.
func (r Record) Check() error {
	switch {
	case r.Origin.IsZero():
		return errors.New("it has no origin")
	case r.State > StateUnreachable:
		return fmt.Errorf("state %d", r.State)
	case r.State != StateRules && (r.Body != nil || r.SHA256 != Sum{} || r.Truncated):
		return fmt.Errorf("state %s with a body", r.State)
	case r.LastGood != nil && r.State != StateUnreachable:
		return fmt.Errorf("state %s with a last good copy", r.State)
	case r.Attempts < 0 || r.Attempts > math.MaxInt32:
		return fmt.Errorf("%d attempts", r.Attempts)
	case (r.Attempts > 0) != r.Failing():
		return errors.New("attempts without a run of failures, or the reverse")
	case r.Attempts == 0 && (r.State == StateUnreachable || !r.NextAttempt.IsZero() || !r.LastFailure.IsZero()):
		return errors.New("a failure without attempts")
	}
	return nil
}
