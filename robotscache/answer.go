package robotscache

import (
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// Answer describes a robots.txt in an access log: the object "robots_txt" of a line of its own, as
// docs/access-log.md has it. Its JSON names are stable within a schema.
type Answer struct {
	Schema int    `json:"schema"`
	Event  string `json:"event"`
	// At is when it happened, in a form that no option of the log changes.
	At        time.Time `json:"at"`
	Origin    string    `json:"origin"`
	FetchedAs string    `json:"fetched_as,omitempty"`
	// Status, Cause and Detail come from the fetch or, without one, from the record.
	Status int         `json:"status,omitempty"`
	Cause  fetch.Cause `json:"cause,omitempty"`
	Detail string      `json:"detail,omitempty"`
	// State is what holds from now on, and SHA256 the hash of its text, in [fetch.StateUnreachable]
	// of the last good one.
	State  string `json:"state,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// The times are the times of the [fetch.Record].
	FetchedAt        time.Time `json:"fetched_at,omitzero"`
	FreshUntil       time.Time `json:"fresh_until,omitzero"`
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	// Discarded says that it is for the requests that waited for it alone.
	Discarded bool `json:"discarded,omitempty"`
	// Gateway is the name of the one that writes the log, which the caller sets.
	Gateway string `json:"gateway,omitempty"`
}

// AnswerSchema is the value of [Answer.Schema].
const AnswerSchema = 1

// The values of [Answer.Event].
const (
	EventFetched = "fetched"
	EventKnown   = "known" // it was there already: in the store, or in memory
	EventPurged  = "purged"
)

// AnswerOf describes an entry of k at the time now. A nil entry says that nothing is known of k.
func AnswerOf(event string, k fetch.Key, e *Entry, now time.Time) Answer {
	a := Answer{Schema: AnswerSchema, Event: event, At: now.UTC(), Origin: k.Origin.String(), FetchedAs: k.Agent}
	if e == nil {
		return a
	}
	r := e.interpretation.Policy.Settle(e.record, now)
	a.Status, a.Cause, a.Detail, a.State = r.Status, r.Cause, r.Detail, r.State.String()
	a.FetchedAt, a.FreshUntil, a.UnreachableSince = r.FetchedAt, r.FreshUntil, r.UnreachableSince
	if text, ok := r.Text(); ok {
		a.SHA256, a.FetchedAt = text.SHA256.Hex(), text.FetchedAt
	}
	return a
}
