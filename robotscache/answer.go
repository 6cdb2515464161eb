package robotscache

import (
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// Answer describes a robots.txt in an access log: the object "robots_txt" of a line of its own. Its
// JSON names are stable within a schema. docs/access-log-fields.md is made from the comments of the
// fields. The caller of [AnswerOf] sets Gateway.
type Answer struct {
	// Schema is the version of this object: 1.
	Schema int `json:"schema"`
	// Event is what happened: `fetched`; `known` when an existing record is first used: from the
	// store, from another gateway, or in memory after a reload; `purged` when an operator deletes
	// the record, with the records that were fetched for single crawlers.
	Event string `json:"event"`
	// At is when it happened. No option of the log changes its form.
	At time.Time `json:"at"`
	// Origin is the scheme, host and port of the robots.txt, as in the lines of requests.
	Origin string `json:"origin"`
	// FetchedAs is the product token in whose name the robots.txt was fetched, as in the lines of
	// requests.
	FetchedAs string `json:"fetched_as,omitempty"`
	// Status is the HTTP status of the fetch or, if the event is `known`, of the record's last answer.
	Status int `json:"status,omitempty"`
	// Cause is why there is no text: see docs/status-table.md.
	Cause fetch.Cause `json:"cause,omitempty"`
	// Detail is more about the cause for a human. Do not parse it.
	Detail string `json:"detail,omitempty"`
	// State is the state from now on: `rules`, `absent` or `unreachable`. After a failed fetch the
	// last good answer stays valid until it expires. A fetch without a result, for example because
	// it was stopped, has no state.
	State string `json:"state,omitempty"`
	// SHA256 is the hash of the text in use. If the state is `unreachable`, it is the hash of the last
	// good text.
	SHA256 string `json:"sha256,omitempty"`
	// FetchedAt is when that text, or the answer that the site has no robots.txt, was fetched.
	FetchedAt time.Time `json:"fetched_at,omitzero"`
	// FreshUntil is the time until which the answer is valid. Later lines do not rest on it, unless
	// the site is unreachable and the configuration allows its last good text.
	FreshUntil time.Time `json:"fresh_until,omitzero"`
	// UnreachableSince is the time of the first failure, if the last fetches failed.
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	// Discarded is true if only the requests that waited for the answer rest on it, because the origin
	// was purged in between, or because the failure was this machine's.
	Discarded bool `json:"discarded,omitempty"`
	// Gateway is the name of the gateway that writes the log.
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
