package robotscache

import (
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// Version is one stretch of an origin's history: a text or a state that held
// without a break from FirstSeen to LastSeen.
type Version struct {
	State fetch.State `json:"state"`
	// Cause and Status are those of the latest answer of the stretch.
	Cause  fetch.Cause `json:"cause,omitzero"`
	Status int         `json:"status,omitzero"`
	// SHA256 and Size describe the text, zero unless State is rules.
	SHA256 fetch.Sum `json:"sha256,omitzero"`
	Size   int       `json:"size,omitzero"`
	// FirstSeen and LastSeen are the first and the latest retrieval that gave it.
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// VersionOf returns the version that a record makes by itself.
func VersionOf(r fetch.Record) Version {
	v := Version{
		State:     r.State,
		Cause:     r.Cause,
		Status:    r.Status,
		FirstSeen: r.FetchedAt,
		LastSeen:  r.FetchedAt,
	}
	if r.State == fetch.StateRules {
		v.SHA256, v.Size = r.SHA256, len(r.Body)
	}
	return v
}

// Continues reports whether v is the same text or state as older, so that both
// are one stretch. The causes of an unreachable origin may alternate within one:
// they must not push its texts out of a bounded history.
func (v Version) Continues(older Version) bool {
	return v.State == older.State && v.SHA256 == older.SHA256
}

// AddVersion returns a history, newest first and at most keep long, to which v
// has been added. The given slice is not changed.
func AddVersion(history []Version, v Version, keep int) []Version {
	if len(history) > 0 && v.Continues(history[0]) {
		v.FirstSeen = history[0].FirstSeen
		history = history[1:]
	}
	history = append([]Version{v}, history...)
	return history[:min(len(history), max(keep, 1))]
}

// Texts returns the hashes of the texts that a record and its history refer to,
// each once, in no particular order.
func Texts(r fetch.Record, history []Version) []fetch.Sum {
	var all []fetch.Sum
	if text, ok := r.Text(); ok {
		all = append(all, text.SHA256)
	}
	for _, v := range history {
		if v.State == fetch.StateRules && !slices.Contains(all, v.SHA256) {
			all = append(all, v.SHA256)
		}
	}
	return all
}

// WithoutText returns r without its body, hashes left in place: what
// [Store.List] returns.
func WithoutText(r fetch.Record) fetch.Record {
	r.Body = nil
	if r.LastGood != nil {
		last := *r.LastGood
		last.Body = nil
		r.LastGood = &last
	}
	return r
}
