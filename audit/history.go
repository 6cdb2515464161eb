package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Histories tells which answers an origin has given, as [robotscache.Store] does. [Texts] that
// implement it let the audit hold the text of a line against those of its origin at that time.
type Histories interface {
	History(ctx context.Context, k fetch.Key) ([]robotscache.Version, error)
}

// histories keeps what was asked for, up to a number of versions.
type histories struct {
	ctx   context.Context // of the Run that makes the value
	from  Histories       // nil where nothing knows them
	known map[string][]robotscache.Version
	used  int
}

// mostVersions is about 20 MiB.
const mostVersions = 100_000

// get gives the versions of a record, the newest first; none where they are not known. The error
// is given once.
func (h *histories) get(k fetch.Key) ([]robotscache.Version, error) {
	name := k.String()
	if versions, ok := h.known[name]; ok {
		return versions, nil
	}
	versions, err := h.from.History(h.ctx, k)
	if errors.Is(err, robotscache.ErrNotFound) {
		err = nil
	} else if err != nil {
		versions, err = nil, fmt.Errorf("reading the history of %s: %w", k, err)
	}
	if h.used += len(versions) + 1; h.used > mostVersions {
		clear(h.known)
		h.used = len(versions) + 1
	}
	h.known[name] = versions
	return versions, err
}

// historySlack is by how much an answer may be older than the version that the store has of it:
// clocks of gateways differ, and a gateway that is killed asks again for what it had not saved.
const historySlack = time.Minute

// dated holds what a line rests on against what its origin answered at that time.
func (j *judge) dated(e *entry, o origin.Origin, v *verdict) {
	if j.histories.from == nil || e.began().IsZero() {
		return
	}
	versions, err := j.histories.get(fetch.Key{Origin: o, Agent: e.Robots.FetchedAs})
	from, to := retrieved(e)
	then := -1 // the version at that time, where the line's is none
	for i, x := range versions {
		if x.FirstSeen.Add(-historySlack).After(to) {
			continue
		}
		if answers(x, e) {
			return
		}
		if then < 0 {
			then = i
		}
		if x.FirstSeen.Add(historySlack).Before(from) { // the versions before it had ended
			x = versions[then]
			what := x.State.String()
			if x.State == fetch.StateRules {
				what = "text " + x.SHA256.Hex()
			}
			v.add(KindHistory, e, fmt.Sprintf("%s answered otherwise at that time: %s, from %s to %s", o, what,
				x.FirstSeen.UTC().Format(time.RFC3339), x.LastSeen.UTC().Format(time.RFC3339)))
			return
		}
	}
	v.how, v.cause, v.fault = unproven, CauseHistory, err // of the time before the first version nothing is known
}

// retrieved is when the answer that a line rests on was fetched, at the earliest and at the latest:
// it had its age when the request was decided.
func retrieved(e *entry) (from, to time.Time) {
	age := time.Duration(e.Robots.AgeSeconds) * time.Second
	to = e.TS.Add(e.TS.late)
	if at := sentAt(e.Robots); !at.IsZero() {
		to = at
	}
	return e.began().Add(-age - time.Second), to.Add(-age)
}

// answers reports whether a version is what a line rests on.
func answers(x robotscache.Version, e *entry) bool {
	if e.Robots.SHA256 == "" {
		return x.State.String() == e.Robots.State
	}
	return x.State == fetch.StateRules && x.SHA256.Hex() == e.Robots.SHA256
}
