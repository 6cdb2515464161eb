package robotscache_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

func TestAddVersion(t *testing.T) {
	t.Parallel()
	at := func(h int) time.Time { return time.Unix(int64(h)*3600, 0).UTC() }
	v := func(state fetch.State, sha byte, cause fetch.Cause, first, last int) robotscache.Version {
		return robotscache.Version{State: state, SHA256: [32]byte{sha}, Cause: cause, FirstSeen: at(first), LastSeen: at(last)}
	}
	var history []robotscache.Version
	for h, n := range []robotscache.Version{
		v(fetch.StateRules, 1, "", 0, 0),
		v(fetch.StateRules, 1, "", 1, 1),
		v(fetch.StateUnreachable, 0, fetch.CauseDNS, 2, 2),
		v(fetch.StateUnreachable, 0, fetch.CauseTLS, 3, 3), // one outage with several causes
		v(fetch.StateRules, 2, "", 4, 4),
		v(fetch.StateAbsent, 0, fetch.CauseStatus, 5, 5),
		v(fetch.StateRules, 2, "", 6, 6),
	} {
		before := append([]robotscache.Version(nil), history...)
		next := robotscache.AddVersion(history, n, 4)
		if !reflect.DeepEqual(before, history) && h > 0 {
			t.Errorf("AddVersion changed its argument in step %d", h)
		}
		history = next
	}
	want := []robotscache.Version{
		v(fetch.StateRules, 2, "", 6, 6),
		v(fetch.StateAbsent, 0, fetch.CauseStatus, 5, 5),
		v(fetch.StateRules, 2, "", 4, 4),
		v(fetch.StateUnreachable, 0, fetch.CauseTLS, 2, 3),
	}
	if !reflect.DeepEqual(history, want) {
		t.Errorf("history\n got %+v\nwant %+v", history, want)
	}
	if got := robotscache.AddVersion(history, want[1], 0); len(got) != 1 {
		t.Errorf("AddVersion keeps %d versions, want 1", len(got))
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := storetest.Rules(example(1), "a", now), storetest.Rules(example(1), "b", now)
	history := []robotscache.Version{
		robotscache.VersionOf(b), robotscache.VersionOf(storetest.Fail(a, now.Add(25*time.Hour))), robotscache.VersionOf(a),
	}
	for name, test := range map[string]struct {
		record fetch.Record
		want   []fetch.Sum
	}{
		"its own is in the history": {b, []fetch.Sum{b.SHA256, a.SHA256}},
		"a last good copy":          {storetest.Fail(a, now.Add(25*time.Hour)), []fetch.Sum{a.SHA256, b.SHA256}},
	} {
		if got := robotscache.Texts(test.record, history); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: Texts = %x", name, got)
		}
	}
	if got := robotscache.Texts(fetch.Record{State: fetch.StateAbsent}, nil); got != nil {
		t.Errorf("Texts of an absent file = %x, want nil", got)
	}
}
