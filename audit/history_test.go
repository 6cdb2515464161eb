package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// archive is a store that knows what its origins have answered.
type archive struct {
	memory
	versions []robotscache.Version // of each origin
	err      error
	asked    int
}

func (a *archive) History(context.Context, fetch.Key) ([]robotscache.Version, error) {
	a.asked++
	return a.versions, a.err
}

// version is a text that an origin gave from one time to another, in minutes from noon.
func version(text string, first, last int) robotscache.Version {
	v := robotscache.Version{
		State: fetch.StateAbsent, FirstSeen: noon.Add(time.Duration(first) * time.Minute), LastSeen: noon.Add(time.Duration(last) * time.Minute),
	}
	if text != "" {
		v.State, v.SHA256 = fetch.StateRules, sha256.Sum256([]byte(text))
	}
	return v
}

// failed is a time without a valid answer.
func failed(first, last int) robotscache.Version {
	v := version("", first, last)
	v.State = fetch.StateUnreachable
	return v
}

// TestHistory: a line rests on what its origin answered when its answer was fetched.
func TestHistory(t *testing.T) {
	t.Parallel()
	const (
		other   = "User-agent: *\nDisallow:\n"
		found   = "a:1 history\n"
		nothing = ""
	)
	store := memory{}
	lines := sampleLines(t, store)
	aged := func(line string, seconds int) object { return lines[line].with("age_s", seconds) }
	for _, tt := range []struct {
		name     string
		line     object
		versions []robotscache.Version // newest first
		want     string
		cause    Cause
	}{
		{"the present text", lines["disallowed"], []robotscache.Version{version(sample, -60, -1)}, nothing, ""},
		{"an older text, fetched in its time", aged("disallowed", 3600), []robotscache.Version{version(other, -5, 5), version(sample, -90, -10)}, nothing, ""},
		{"an older text, fetched after its time", aged("disallowed", 60), []robotscache.Version{version(other, -5, 5), version(sample, -90, -10)}, found, ""},
		{"a later text", lines["disallowed"], []robotscache.Version{version(sample, 5, 9), version(other, -90, 1)}, found, ""},
		{"a text of another site", lines["allowed"], []robotscache.Version{version(other, -90, 0)}, found, ""},
		{"a text in place of none", lines["allowed"], []robotscache.Version{version("", -90, 0)}, found, ""},
		{"a text that came again", aged("allowed", 60), []robotscache.Version{version(other, 5, 9), version(sample, -3, 4), version(other, -9, -4)}, nothing, ""},
		{"a text that was saved after a crash", lines["allowed"], []robotscache.Version{version(sample, 1, 4), version(other, -9, -4)}, nothing, ""},
		{"a text that was last saved before a crash", lines["allowed"], []robotscache.Version{version(other, 5, 9), version(sample, -9, -4)}, nothing, ""},
		{"a tunnel to another site's rules", lines["tunnel"], []robotscache.Version{version(other, -90, 0)}, found, ""},
		{"none in place of a text", lines["absent"], []robotscache.Version{version(sample, -90, 0)}, found, ""},
		{"none", lines["absent"], []robotscache.Version{version("", -90, 0)}, nothing, ""},
		{"a history that begins later", lines["allowed"], []robotscache.Version{version(sample, 5, 9)}, nothing, CauseHistory},
		{"a history that began soon after, as a purge makes it", lines["allowed"], []robotscache.Version{version(other, 1, 9)}, nothing, CauseHistory},
		{"a text before the history, and none since", lines["allowed"], []robotscache.Version{version("", 0, 9)}, nothing, CauseHistory},
		{"no file before the history, and a text since", lines["absent"], []robotscache.Version{version(sample, 0, 9)}, nothing, CauseHistory},
		{"a text before the history, and a failure since", lines["allowed"], []robotscache.Version{failed(0, 9)}, nothing, CauseHistory},
		{"an older text within the tolerance of the first change", lines["allowed"], []robotscache.Version{version(other, 1, 9), version(sample, 0, 0)}, nothing, ""},
		{"a text of no version, within the tolerance of two", lines["allowed"], []robotscache.Version{version(other, 1, 9), version("", 0, 0)}, nothing, CauseHistory},
		{"a text of no version, after the first two", lines["allowed"], []robotscache.Version{version(other, 1, 9), version("", -2, 0)}, found, ""},
		{"no history", lines["allowed"], nil, nothing, CauseHistory},
		{"an unreachable site has no time of its own", lines["unreachable"], nil, nothing, ""},
		{"robots.txt itself rests on no text", lines["robots.txt"], nil, nothing, ""},
		{"an answer that broke off, and then the text had changed", func() object {
			l := lines["allowed"].with("age_s", nil).with("sent_at", float64(noon.Unix()-149))
			l["duration"] = 0 // Caddy, of a handler that panicked
			return l
		}(), []robotscache.Version{version(other, -2, 5), version(sample, -90, -2)}, nothing, ""},
		{"a line of an unknown time", func() object { l := lines["allowed"].with("age_s", nil); delete(l, "duration"); return l }(), nil, nothing, ""},
	} {
		r := auditLogs(t, Config{Texts: &archive{memory: store, versions: tt.versions}}, logOf(t, tt.line))
		if r.brief() != tt.want || len(r.totals.NotProvable) != len(tt.cause)/len(CauseHistory) || tt.cause != "" && r.totals.NotProvable[tt.cause] != 1 {
			t.Errorf("%s: found %q, want %q; not provable: %v, want %q", tt.name, r.brief(), tt.want, r.totals.NotProvable, tt.cause)
		}
	}
}

// TestHistoryUnread: a history that cannot be read is an error once, and one that is not there is none.
func TestHistoryUnread(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["allowed"]
	for err, want := range map[error]string{errors.New("broken"): "a:1 error\n", robotscache.ErrNotFound: ""} {
		a := &archive{memory: store, err: err}
		r := auditLogs(t, Config{Texts: a}, logOf(t, l, l.at(noon.Add(time.Hour))))
		if r.brief() != want || r.totals.NotProvable[CauseHistory] != 2 || a.asked != 1 {
			t.Errorf("%v: %q, %v, asked %d times", err, r.brief(), r.totals.NotProvable, a.asked)
		}
	}
}
