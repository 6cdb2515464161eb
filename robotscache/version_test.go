package robotscache_test

import (
	"math"
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
		v(fetch.StateUnreachable, 0, fetch.CauseTLS, 3, 3), // one outage, however it shows
		v(fetch.StateRules, 2, "", 4, 4),
		v(fetch.StateAbsent, 0, fetch.CauseStatus, 5, 5),
		v(fetch.StateRules, 2, "", 6, 6),
	} {
		before := append([]robotscache.Version(nil), history...)
		next := robotscache.AddVersion(history, n, 4)
		if !reflect.DeepEqual(before, history) && h > 0 {
			t.Errorf("step %d changed its argument", h)
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
		t.Errorf("kept %d of at least one", len(got))
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
		want   [][32]byte
	}{
		"its own is in the history": {b, [][32]byte{b.SHA256, a.SHA256}},
		"a last good copy":          {storetest.Fail(a, now.Add(25*time.Hour)), [][32]byte{a.SHA256, b.SHA256}},
	} {
		if got := robotscache.Texts(test.record, history); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %x", name, got)
		}
	}
	if got := robotscache.Texts(fetch.Record{State: fetch.StateAbsent}, nil); got != nil {
		t.Errorf("of nothing: %x", got)
	}
}

func TestVersion_AppendBinaryRefuses(t *testing.T) {
	t.Parallel()
	for _, v := range []robotscache.Version{
		{Status: -1},
		{Status: math.MaxUint16 + 1},
		{Size: -1},
		{Size: math.MaxUint32 + 1},
		{Cause: fetch.Cause(make([]byte, 256))},
	} {
		if _, err := v.AppendBinary(nil); err == nil {
			t.Errorf("%+v: no error", v)
		}
	}
}

// Any octets are versions that encode to the same octets, or none.
func FuzzDecodeVersions(f *testing.F) {
	var seed []byte
	for _, v := range []robotscache.Version{
		robotscache.VersionOf(storetest.Rules(example(1), someRules, time.Now())),
		robotscache.VersionOf(storetest.Fail(fetch.Record{Origin: example(1)}, time.Now())),
	} {
		var err error
		if seed, err = v.AppendBinary(seed); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		versions, err := robotscache.DecodeVersions(b)
		if err != nil {
			return
		}
		var again []byte
		for _, v := range versions {
			if again, err = v.AppendBinary(again); err != nil {
				t.Fatal(err)
			}
		}
		if string(again) != string(b) {
			t.Errorf("%x came back as %x", b, again)
		}
	})
}
