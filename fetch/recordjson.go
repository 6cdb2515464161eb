package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
)

// Sum is the SHA-256 of a text. As text it is hexadecimal.
type Sum [sha256.Size]byte

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

// SetBody gives a decoded record its body back: the one whose hash [Record.Text]
// has. It refuses any other, and any for a record that has none.
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

// Check reports a contradiction in a record. No transition makes one, so it is a
// sign of a defect, or of a stored record that somebody has changed: no store takes
// or returns it.
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
