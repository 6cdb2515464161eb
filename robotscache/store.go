package robotscache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// MaxList is the most records that one call of [Store.List] returns.
const MaxList = 1000

// Store keeps the records of origins beyond the life of the process. The cache's hot tier may drop
// anything at any time, so the store is where the 30-day clock of an unreachable origin lives.
//
// Concurrency: every method may be called by many goroutines at once. A cache makes one call of
// Save or Delete at a time. Between processes that share the medium there is no such order: the
// record with the later attempt wins.
//
// Blocking: every method does I/O on the caller's goroutine. All give up when ctx ends, if their
// medium can, and every store has its own time limit.
//
// Durability: a change by Save or Delete that returned nil survives the end of the process, as far
// as the medium promises.
//
// Trust: the caller is responsible for the records that it saves. A store returns the saved record
// or an error, and checks each body against its SHA-256. A record whose text is missing, perhaps
// for lack of room, counts as not found. A store does not check age: it returns expired records
// like others.
//
// Ownership: a record's slices are shared after Save and after Load. Neither side changes them.
//
// Errors: ErrNotFound, ErrUnavailable, ErrCorrupt and ErrInvalid are found with errors.Is; an error
// of ctx is passed on. Every error is written for the operator, with the path or address of the
// store.
type Store interface {
	// Load returns the record of k with its text. It sees each Save that has returned.
	Load(ctx context.Context, k fetch.Key) (fetch.Record, error)

	// Save replaces the records of the given origins, in order, and adds their versions to the
	// histories. After an error, some records may be saved; saving them again does no harm. ErrInvalid
	// says that one of the records cannot be kept, any other error that it may work later.
	Save(ctx context.Context, records ...fetch.Record) error

	// Delete forgets k: its record and its history. Its texts may stay until their time is over.
	// Deleting an unknown origin is no error.
	Delete(ctx context.Context, k fetch.Key) error

	// List returns up to limit records (at most MaxList; 0 means MaxList) whose Key().String()
	// sorts after the string given, in that order, WITHOUT bodies: Body and LastGood.Body are nil, the
	// hashes are set. If it returns fewer than limit records, there are no more.
	List(ctx context.Context, after string, limit int) ([]fetch.Record, error)

	// History returns the versions that the robots.txt of k has had, newest first, the present one
	// included, each with the time until which its text is kept. How many are kept is the store's
	// setting.
	History(ctx context.Context, k fetch.Key) ([]Version, error)

	// Body returns the text with the given SHA-256 until its time is over: see [Retention]. A store
	// in memory has it for as long as it has an origin whose record or history refers to it.
	Body(ctx context.Context, sha [32]byte) ([]byte, error)

	// Close releases everything. Later calls return an error.
	Close() error
}

// Errors of a [Store], to be found with errors.Is.
var (
	// ErrNotFound is the answer for an origin or a body that is not in the store.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable means that the medium does not answer at the moment. Until it does, calls fail
	// quickly.
	ErrUnavailable = errors.New("store unavailable")
	// ErrCorrupt means that the stored value differs from the saved one. Treat the origin as unknown.
	ErrCorrupt = errors.New("stored data is damaged")
	// ErrInvalid means that a record contradicts itself, and so cannot be kept.
	ErrInvalid = errors.New("invalid record")
)

// Leaser is implemented by stores that several gateways share: it lets one of them fetch an origin
// while the others wait for its record.
type Leaser interface {
	// Lease asks for the right to fetch k. If acquired is false another gateway has it. Otherwise
	// the caller has it, and l is set: for ttl, and for as long again from each renewal. With an
	// error nothing is known and no lease is held.
	Lease(ctx context.Context, k fetch.Key, ttl time.Duration) (l Lease, acquired bool, err error)
}

// Lease is the right to fetch one origin. Its methods may be called at once.
type Lease interface {
	// Renew makes the lease last for its ttl from now on, and reports whether it is still the
	// caller's. One that ran out or was released is not taken again. With an error the state of the
	// lease is unknown.
	Renew(ctx context.Context) (held bool, err error)
	// Release gives up the lease, and never the lease of another gateway. It does not block for
	// long and may be called once.
	Release()
}

// Version is one stretch of an origin's history: a text or a state that lasted without a break.
type Version struct {
	// State is "rules", "absent" or "unreachable".
	State fetch.State `json:"state"`
	// Cause says why the state is not "rules", by the latest answer of the stretch.
	Cause fetch.Cause `json:"cause,omitzero"`
	// Status is the HTTP status of the latest answer of the stretch.
	Status int `json:"status,omitzero"`
	// SHA256 is the hash of the text, in the state "rules" only.
	SHA256 fetch.Sum `json:"sha256,omitzero"`
	// Size is the number of bytes of the text.
	Size int `json:"size,omitzero"`
	// FirstSeen is the first fetch that gave it.
	FirstSeen time.Time `json:"first_seen"`
	// LastSeen is the latest fetch that gave it. It was used up to 24 h longer.
	LastSeen time.Time `json:"last_seen"`
	// KeptUntil is until when the text is kept if nothing uses it any more, and if there is room.
	// It is empty if the text is gone, and in a store in memory.
	KeptUntil time.Time `json:"kept_until,omitzero"`
}

// Retention says how long a store keeps the texts by which lines of an access log can be proven.
// Fields that are zero take their defaults.
type Retention struct {
	// For is how long a text is kept after the last decision that used it; default 400 days.
	//
	// No use is written: a record is acted on for [fetch.MaxUse] after it was saved at the most,
	// and in use it is saved again. So a text is kept for For and MaxUse from the last save of a
	// record that refers to it.
	For time.Duration
	// Max bounds the texts in bytes as they are stored; default 4 GiB. Beyond it those go first
	// that were used least recently. It is for stores that hold their own medium.
	Max int64
}

const (
	// minRecords is how long records are kept at the least: twice the longest time for which the
	// past of an unreachable origin matters.
	minRecords = 60 * 24 * time.Hour
	// MaxVersions is how many versions of an origin stores keep by default: enough for a text that
	// changes every day while it is retained.
	MaxVersions = 500
)

// Filled returns r with its defaults.
func (r Retention) Filled() Retention {
	return Retention{For: cmp.Or(r.For, 400*24*time.Hour), Max: cmp.Or(r.Max, 4<<30)}
}

// Texts is how long a text is kept after the last save of a record that refers to it.
func (r Retention) Texts() time.Duration { return r.For + fetch.MaxUse }

// Records is how long a record is kept after its last save, with its history.
func (r Retention) Records() time.Duration { return max(r.Texts(), minRecords) }

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

// Continues reports whether v belongs to the stretch of old, the version before it: the same text
// or state. The causes of an unreachable origin may alternate within it.
func (v Version) Continues(old Version) bool { return v.State == old.State && v.SHA256 == old.SHA256 }

// AddVersion returns a history, newest first and at most keep long, to which v has been added. The
// given slice is not changed.
func AddVersion(history []Version, v Version, keep int) []Version {
	if len(history) > 0 && v.Continues(history[0]) {
		v.FirstSeen = history[0].FirstSeen
		history = history[1:]
	}
	history = append([]Version{v}, history...)
	return history[:min(len(history), max(keep, 1))]
}

// Texts returns the hashes of the texts that a record and its history refer to, each once, in no
// particular order.
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

// WithoutText returns r without its body, hashes left in place: what [Store.List] returns.
func WithoutText(r fetch.Record) fetch.Record {
	r.Body = nil
	if r.LastGood != nil {
		last := *r.LastGood
		last.Body = nil
		r.LastGood = &last
	}
	return r
}
