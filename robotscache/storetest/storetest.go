//nolint:thelper // the functions that take a *testing.T are the tests of the suite
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Medium is a place in which a store keeps its records: a folder, a database.
type Medium struct {
	// Open returns a store over the medium. Only one is open at a time.
	Open func(t testing.TB) robotscache.Store
	// Volatile reports that a new store has nothing of what an earlier one saved.
	Volatile bool
	// Versions is the number of versions of an origin that its stores keep.
	Versions int
	// Retained is the Retention.For of its stores; 0 if texts are removed with the versions that
	// have them.
	Retained time.Duration
}

// Run runs the suite; medium returns an empty medium for each test.
func Run(t *testing.T, medium func(tb testing.TB) Medium) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, Medium)
	}{
		{"RoundTrip", testRoundTrip},
		{"Unknown", testUnknown},
		{"Replace", testReplace},
		{"EmptyTextIsNotNoText", testEmptyText},
		{"LargeTexts", testLargeTexts},
		{"Agents", testAgents},
		{"Delete", testDelete},
		{"SharedTexts", testSharedTexts},
		{"History", testHistory},
		{"HistoryIsBounded", testHistoryBounded},
		{"TextsAreRetained", testTextsRetained},
		{"List", testList},
		{"Contradiction", testContradiction},
		{"EndedContext", testEndedContext},
		{"Concurrency", testConcurrency},
		{"Durability", testDurability},
		{"Closed", testClosed},
		{"Lease", testLease},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, medium(t)) })
	}
}

// start returns when the histories of the suite begin: now, so that no store considers them old,
// and with nanoseconds that a careless encoding would lose.
func start() time.Time { return time.Now().UTC().Round(0).Truncate(time.Second).Add(123456789) }

// Rules returns a record in state rules with the given text.
func Rules(o origin.Origin, text string, at time.Time) fetch.Record {
	out := fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(text)}
	return fetch.Policy{}.Next(fetch.Record{Origin: o}, out, at)
}

// Fail returns the record that follows r by a failure after its time to live.
func Fail(r fetch.Record, at time.Time) fetch.Record {
	return fetch.Policy{}.Next(r, fetch.Outcome{Cause: fetch.CauseTimeout, Detail: "no header in 10s"}, at)
}

// Origin parses the text of a valid origin.
func Origin(tb testing.TB, text string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func open(tb testing.TB, m Medium) robotscache.Store {
	tb.Helper()
	s := m.Open(tb)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func save(tb testing.TB, s robotscache.Store, records ...fetch.Record) {
	tb.Helper()
	if err := s.Save(tb.Context(), records...); err != nil {
		tb.Fatalf("saving %d records: %v", len(records), err)
	}
}

func wantRecord(tb testing.TB, s robotscache.Store, want fetch.Record) {
	tb.Helper()
	got, err := s.Load(tb.Context(), want.Key())
	if err != nil {
		tb.Errorf("loading %s: %v", want.Origin, err)
		return
	}
	if !Equal(got, want) {
		tb.Errorf("loaded %s:\n got %+v\nwant %+v", want.Origin, got, want)
	}
}

func wantUnknown(tb testing.TB, s robotscache.Store, o origin.Origin) {
	tb.Helper()
	if r, err := s.Load(tb.Context(), fetch.Key{Origin: o}); !errors.Is(err, robotscache.ErrNotFound) {
		tb.Errorf("loading %s: %+v, %v; want ErrNotFound", o, r, err)
	}
}

// Equal reports whether two records are equal. No body equals an empty one: the hash distinguishes
// them.
func Equal(a, b fetch.Record) bool {
	ta, _ := a.Text()
	tb, _ := b.Text()
	if !bytes.Equal(ta.Body, tb.Body) {
		return false
	}
	a, b = robotscache.WithoutText(a), robotscache.WithoutText(b)
	if len(a.Hops) == 0 && len(b.Hops) == 0 {
		a.Hops, b.Hops = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// samples returns a record of each kind.
func samples(tb testing.TB) []fetch.Record {
	tb.Helper()
	var p fetch.Policy
	now := start()
	named := func(host string) fetch.Record { return fetch.Record{Origin: Origin(tb, host)} }

	rules := p.Next(named("https://rules.example"), fetch.Outcome{
		Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /a\n"), Truncated: true,
		Hops: []string{"https://www.rules.example/robots.txt"}, MaxAge: time.Hour, HasMaxAge: true,
	}, now)
	absent := p.Next(named("http://absent.example:8080"), fetch.Outcome{
		Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404, Detail: "404 Not Found",
	}, now)
	failing := Fail(Rules(Origin(tb, "http://[2001:db8::1]"), "Disallow: /\n", now), now.Add(23*time.Hour))
	lost := Fail(Fail(Rules(Origin(tb, "ftp://lost.example"), "User-agent: a\n", now), now.Add(25*time.Hour)), now.Add(26*time.Hour))
	never := p.Next(named("http://192.0.2.7"), fetch.Outcome{Cause: fetch.CauseStatus, Status: 503, RetryAfter: time.Hour}, now)
	return []fetch.Record{rules, absent, failing, lost, never}
}

func testRoundTrip(t *testing.T, m Medium) {
	s := open(t, m)
	all := samples(t)
	save(t, s) // no records
	save(t, s, all...)
	for _, r := range all {
		wantRecord(t, s, r)
	}
}

func testUnknown(t *testing.T, m Medium) {
	s := open(t, m)
	// A careless store could confuse these keys.
	save(t, s, Rules(Origin(t, "http://a.example:8080"), "a", start()))
	for _, other := range []string{"http://a.example", "https://a.example:8080", "http://a.example:80", "http://a.example:808"} {
		wantUnknown(t, s, Origin(t, other))
	}
	if _, err := s.History(t.Context(), fetch.Key{Origin: Origin(t, "http://b.example")}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("history of an unknown origin: %v; want ErrNotFound", err)
	}
	if _, err := s.Body(t.Context(), sha256.Sum256([]byte("b"))); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("an unknown body: %v; want ErrNotFound", err)
	}
}

func testReplace(t *testing.T, m Medium) {
	s := open(t, m)
	o, now := Origin(t, "https://replace.example"), start()
	r := Rules(o, "one", now)
	for _, next := range []fetch.Record{
		r,
		Rules(o, "two", now.Add(time.Hour)),
		Fail(Rules(o, "two", now.Add(time.Hour)), now.Add(26*time.Hour)),
		Rules(o, "three", now.Add(27*time.Hour)),
	} {
		save(t, s, next)
		wantRecord(t, s, next)
	}
	last := Rules(o, "five", now.Add(29*time.Hour))
	save(t, s, Rules(o, "four", now.Add(28*time.Hour)), last) // the later one in a call is kept
	wantRecord(t, s, last)
	if h, err := s.History(t.Context(), fetch.Key{Origin: o}); err != nil || len(h) < 2 || h[0].Size != 4 || h[1].Size != 4 {
		t.Errorf("history after two saves in one call = %+v, %v", h, err)
	}
}

func testEmptyText(t *testing.T, m Medium) {
	s := open(t, m)
	r := Rules(Origin(t, "https://empty.example"), "", start())
	save(t, s, r)
	wantRecord(t, s, r)
	if body, err := s.Body(t.Context(), r.SHA256); err != nil || len(body) != 0 {
		t.Errorf("Body of an empty text = %q, %v", body, err)
	}
	// An empty text permits everything; a lost text would permit nothing.
	got, err := s.Load(t.Context(), r.Key())
	if access := (fetch.Policy{}).Access(got, r.FetchedAt); access != fetch.AccessRules {
		t.Errorf("access with an empty text = %v, %v, want AccessRules", access, err)
	}
}

func testLargeTexts(t *testing.T, m Medium) {
	s := open(t, m)
	const size = 500 << 10
	noise := make([]byte, size)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(noise)
	same := bytes.Repeat([]byte("Disallow: /same/path\n"), size/21)
	for i, text := range [][]byte{noise, same} {
		rec := Rules(Origin(t, fmt.Sprintf("https://large%d.example", i)), string(text), start())
		save(t, s, rec)
		wantRecord(t, s, rec)
	}
}

// testAgents checks that what one agent got is stored under its own key, for each method.
func testAgents(t *testing.T, m Medium) {
	s := open(t, m)
	o, now := Origin(t, "http://a.example"), start()
	told := func(agent, text string) fetch.Record {
		r := fetch.Record{Origin: o, Agent: agent}
		out := fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(text)}
		if text == "" {
			out = fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 403}
		}
		return fetch.Policy{}.Next(r, out, now)
	}
	own, acme, bob := told("", ""), told("AcmeBot", "acme"), Fail(told("BobBot", "bob"), now.Add(25*time.Hour))
	save(t, s, bob, acme, own, Rules(Origin(t, "http://a.example:81"), "81", now), Rules(Origin(t, "http://a.example-b.example"), "b", now))
	for _, r := range []fetch.Record{own, acme, bob} {
		wantRecord(t, s, r)
		if h, err := s.History(t.Context(), r.Key()); err != nil || len(h) != 1 || h[0].SHA256 != robotscache.VersionOf(r).SHA256 {
			t.Errorf("history of %s = %+v, %v", r.Key(), h, err)
		}
	}
	for _, agent := range []string{"acmebot", "AcmeBo", "AcmeBot2"} {
		if _, err := s.Load(t.Context(), fetch.Key{Origin: o, Agent: agent}); !errors.Is(err, robotscache.ErrNotFound) {
			t.Errorf("loading a record of %s: got %v, want ErrNotFound", agent, err)
		}
	}
	list, err := s.List(t.Context(), "", 0)
	if err != nil || len(list) != 5 || list[0].Key() != own.Key() || list[1].Key() != acme.Key() || list[2].Key() != bob.Key() {
		t.Errorf("List = %+v, %v, want the records of an origin in a row", list, err)
	}
	if list, err := s.List(t.Context(), acme.Key().String(), 1); err != nil || len(list) != 1 || list[0].Key() != bob.Key() {
		t.Errorf("List after %s = %+v, %v", acme.Key(), list, err)
	}
	if err := s.Delete(t.Context(), acme.Key()); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, s, own)
	wantRecord(t, s, bob)
}

func testDelete(t *testing.T, m Medium) {
	s := open(t, m)
	all := samples(t)
	save(t, s, all...)
	gone := all[0].Origin
	for range 2 { // the second time, there is nothing to delete
		if err := s.Delete(t.Context(), fetch.Key{Origin: gone}); err != nil {
			t.Fatal(err)
		}
		wantUnknown(t, s, gone)
	}
	if _, err := s.History(t.Context(), fetch.Key{Origin: gone}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("history of a deleted origin: %v; want ErrNotFound", err)
	}
	for _, r := range all[1:] {
		wantRecord(t, s, r)
	}
	// An origin that is saved again has no history.
	again := Rules(gone, "again", start())
	save(t, s, again)
	wantRecord(t, s, again)
	if h, err := s.History(t.Context(), fetch.Key{Origin: gone}); err != nil || len(h) != 1 {
		t.Errorf("history of an origin that was saved again = %+v, %v, want one version", h, err)
	}
}

func testSharedTexts(t *testing.T, m Medium) {
	s := open(t, m)
	a, b := Origin(t, "http://shared.example"), Origin(t, "https://shared.example")
	const text = "User-agent: *\nDisallow: /shared\n"
	now := start()
	ra, rb := Rules(a, text, now), Rules(b, text, now)
	save(t, s, ra, rb)
	if err := s.Delete(t.Context(), fetch.Key{Origin: a}); err != nil {
		t.Fatal(err)
	}
	wantRecord(t, s, rb)

	// The text stays as long as only a last good copy, then only the history, refers to it.
	lost := Fail(rb, now.Add(25*time.Hour))
	save(t, s, lost)
	wantRecord(t, s, lost)
	save(t, s, Rules(b, "other", now.Add(26*time.Hour)))
	if body, err := s.Body(t.Context(), rb.SHA256); err != nil || string(body) != text {
		t.Errorf("Body of an earlier version = %q, %v", body, err)
	}
}

func testHistory(t *testing.T, m Medium) {
	s := open(t, m)
	o, now := Origin(t, "https://history.example"), start()
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour) }
	first := Rules(o, "first", at(0))
	second := Rules(o, "second!", at(40))
	for _, r := range []fetch.Record{
		first,
		Rules(o, "first", at(20)),
		second,
		Fail(second, at(60)), // before it expires: still the same version
		Fail(second, at(65)),
		Fail(Fail(second, at(65)), at(66)),
		Rules(o, "first", at(70)),
	} {
		save(t, s, r)
	}
	got, err := s.History(t.Context(), fetch.Key{Origin: o})
	if err != nil {
		t.Fatal(err)
	}
	want := []robotscache.Version{
		{State: fetch.StateRules, Status: 200, SHA256: first.SHA256, Size: 5, FirstSeen: at(70), LastSeen: at(70)},
		{State: fetch.StateUnreachable, Cause: fetch.CauseTimeout, FirstSeen: at(65), LastSeen: at(66)},
		{State: fetch.StateRules, Status: 200, SHA256: second.SHA256, Size: 7, FirstSeen: at(40), LastSeen: at(40)},
		{State: fetch.StateRules, Status: 200, SHA256: first.SHA256, Size: 5, FirstSeen: at(0), LastSeen: at(20)},
	}
	for i, v := range got {
		wantKeptUntil(t, m, v)
		got[i].KeptUntil = time.Time{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("history:\n got %+v\nwant %+v", got, want)
	}
	for _, v := range want {
		if v.State != fetch.StateRules {
			continue
		}
		if body, err := s.Body(t.Context(), v.SHA256); err != nil || len(body) != v.Size {
			t.Errorf("Body of %x = %q, %v", v.SHA256, body, err)
		}
	}
}

func testHistoryBounded(t *testing.T, m Medium) {
	s := open(t, m)
	o, now := Origin(t, "https://changing.example"), start()
	var last fetch.Record
	for i := range 3 * m.Versions {
		last = Rules(o, fmt.Sprintf("version %d", i), now.Add(time.Duration(i)*time.Hour))
		save(t, s, last)
	}
	got, err := s.History(t.Context(), fetch.Key{Origin: o})
	if err != nil || len(got) != m.Versions {
		t.Fatalf("%d versions, %v; want %d", len(got), err, m.Versions)
	}
	for i, v := range got {
		want := fmt.Sprintf("version %d", 3*m.Versions-1-i)
		if body, err := s.Body(t.Context(), v.SHA256); err != nil || string(body) != want {
			t.Errorf("version %d: %q, %v; want %q", i, body, err, want)
		}
	}
	wantRecord(t, s, last)
}

// wantKeptUntil checks a version whose text was just saved: decisions may use it for fetch.MaxUse,
// and its retention begins then. A store may note uses once a day.
func wantKeptUntil(t *testing.T, m Medium, v robotscache.Version) {
	t.Helper()
	if m.Retained == 0 || v.State != fetch.StateRules {
		if !v.KeptUntil.IsZero() {
			t.Errorf("a text that is not retained is kept until %s: %+v", v.KeptUntil, v)
		}
		return
	}
	least := time.Now().Add(m.Retained + fetch.MaxUse)
	if v.KeptUntil.Before(least.Add(-time.Minute)) || v.KeptUntil.After(least.Add(24*time.Hour)) {
		t.Errorf("kept until %s, want %s and at most a day more: %+v", v.KeptUntil, least, v)
	}
}

// testTextsRetained checks that a text is retained even if the versions and origins that refer to
// it are removed.
func testTextsRetained(t *testing.T, m Medium) {
	if m.Retained == 0 {
		return
	}
	s := open(t, m)
	now := start()
	a, b := Origin(t, "https://changing.example"), Origin(t, "https://gone.example")
	var sums []fetch.Sum
	for i := range 3 * m.Versions {
		r := Rules(a, fmt.Sprintf("version %d", i), now.Add(time.Duration(i)*time.Hour))
		save(t, s, r)
		sums = append(sums, r.SHA256)
	}
	r := Rules(b, "gone", now)
	save(t, s, r)
	if err := s.Delete(t.Context(), fetch.Key{Origin: b}); err != nil {
		t.Fatal(err)
	}
	for i, sum := range append(sums, r.SHA256) {
		if _, err := s.Body(t.Context(), sum); err != nil {
			t.Errorf("Body of text %d: %v", i, err)
		}
	}
}

func testList(t *testing.T, m Medium) {
	s := open(t, m)
	now := start()
	var want []fetch.Record
	for i := range 25 {
		r := Rules(Origin(t, fmt.Sprintf("https://list%02d.example", i)), "text", now)
		if i%3 == 0 {
			r = Fail(r, now.Add(25*time.Hour))
		}
		want = append(want, robotscache.WithoutText(r))
		save(t, s, r)
	}
	if err := s.Delete(t.Context(), want[7].Key()); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 7, 8)

	var got []fetch.Record
	for after := ""; ; after = got[len(got)-1].Key().String() {
		page, err := s.List(t.Context(), after, 10)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		if len(page) < 10 {
			break
		}
	}
	if len(got) != len(want) {
		t.Fatalf("listed %d records, want %d", len(got), len(want))
	}
	for i := range got {
		if text, _ := got[i].Text(); text.Body != nil || !Equal(got[i], want[i]) {
			t.Errorf("record %d:\n got %+v\nwant %+v", i, got[i], want[i])
		}
	}
	for _, limit := range []int{0, -1, robotscache.MaxList + 1} {
		if page, err := s.List(t.Context(), "", limit); err != nil || len(page) != len(want) {
			t.Errorf("List with limit %d = %d records, %v", limit, len(page), err)
		}
	}
	if page, err := s.List(t.Context(), "https://list24.example", 0); err != nil || len(page) != 0 {
		t.Errorf("List after the last = %+v, %v, want none", page, err)
	}
}

// testContradiction checks that a record is refused that would be loaded as something else.
func testContradiction(t *testing.T, m Medium) {
	s := open(t, m)
	r := Rules(Origin(t, "https://wrong.example"), "text", start())
	r.Body = []byte("not what the hash says")
	if err := s.Save(t.Context(), r); !errors.Is(err, robotscache.ErrInvalid) {
		t.Errorf("saving a body that is not the one of its hash: %v; want ErrInvalid", err)
	}
	wantUnknown(t, s, r.Origin)
}

func testEndedContext(t *testing.T, m Medium) {
	s := open(t, m)
	r := Rules(Origin(t, "https://ended.example"), "text", start())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Load(ctx, r.Key()); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: got %v, want context.Canceled", err)
	}
	if err := s.Save(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("Save: got %v, want context.Canceled", err)
	}
	wantUnknown(t, s, r.Origin)
}

func testConcurrency(t *testing.T, m Medium) {
	s := open(t, m)
	now := start()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(g))) //nolint:gosec // repeatable
			o := Origin(t, fmt.Sprintf("https://c%d.example", g))
			for i := range 50 {
				// There are few texts, so that the origins share and drop them all the time.
				r := Rules(o, fmt.Sprintf("text %d", rnd.IntN(5)), now.Add(time.Duration(i)*time.Minute))
				save(t, s, r)
				wantRecord(t, s, r)
				if rnd.IntN(10) == 0 {
					if err := s.Delete(t.Context(), fetch.Key{Origin: o}); err != nil {
						t.Error(err)
					}
					wantUnknown(t, s, o)
				}
			}
		})
	}
	for range 20 {
		if _, err := s.List(t.Context(), "", 0); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func testDurability(t *testing.T, m Medium) {
	all := samples(t)
	s := open(t, m)
	save(t, s, all...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if m.Volatile {
		return
	}
	s = open(t, m)
	for _, r := range all {
		wantRecord(t, s, r)
		if h, err := s.History(t.Context(), r.Key()); err != nil || len(h) != 1 {
			t.Errorf("history of %s = %+v, %v, want one version", r.Origin, h, err)
		}
	}
}

func testClosed(t *testing.T, m Medium) {
	s := open(t, m)
	r := Rules(Origin(t, "https://closed.example"), "text", start())
	save(t, s, r)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), r); err == nil {
		t.Error("Save after Close gives no error")
	}
	if _, err := s.Load(t.Context(), r.Key()); err == nil {
		t.Error("Load after Close gives no error")
	}
	_ = s.Close() // must not panic or hang
}

func testLease(t *testing.T, m Medium) {
	s := open(t, m)
	l, ok := s.(robotscache.Leaser)
	if !ok {
		return
	}
	o, other := Origin(t, "https://lease.example"), Origin(t, "https://lease2.example")
	lease := func(o origin.Origin, ttl time.Duration) (robotscache.Lease, bool) {
		t.Helper()
		held, acquired, err := l.Lease(t.Context(), fetch.Key{Origin: o}, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return held, acquired
	}
	first, acquired := lease(o, time.Minute)
	if !acquired {
		t.Fatal("the first lease was not acquired")
	}
	if _, again := lease(o, time.Minute); again {
		t.Error("two leases were acquired for one origin")
	}
	if held, acquired := lease(other, time.Minute); !acquired {
		t.Error("a lease blocks another origin")
	} else {
		held.Release()
	}
	wantHeld(t, first, true)
	first.Release()
	wantHeld(t, first, false) // and does not take it again

	// A lease that has expired is not renewed, and releasing it does not release the lease of its
	// next holder.
	expired, acquired := lease(o, 50*time.Millisecond)
	if !acquired {
		t.Fatal("a released lease is still held")
	}
	next := leaseSoon(t, lease, o, time.Minute)
	wantHeld(t, expired, false)
	expired.Release()
	if _, again := lease(o, time.Minute); again {
		t.Error("releasing an expired lease released the lease of another holder")
	}
	next.Release()
	testRenewal(t, lease, o)
}

// testRenewal checks that a lease that is renewed lasts longer than its ttl, but no longer than
// that after the last renewal.
func testRenewal(t *testing.T, lease func(origin.Origin, time.Duration) (robotscache.Lease, bool), o origin.Origin) {
	t.Helper()
	const ttl = 2 * time.Second
	held, acquired := lease(o, ttl)
	if !acquired {
		t.Fatal("a released lease is still held")
	}
	for began := time.Now(); time.Since(began) < 2*ttl; time.Sleep(ttl / 10) {
		wantHeld(t, held, true)
		if _, again := lease(o, ttl); again {
			t.Fatal("two leases were acquired for one origin although the first is renewed")
		}
	}
	leaseSoon(t, lease, o, time.Minute).Release()
}

// leaseSoon waits until the previous lease has expired, and acquires one.
func leaseSoon(
	t *testing.T, lease func(origin.Origin, time.Duration) (robotscache.Lease, bool), o origin.Origin, ttl time.Duration,
) robotscache.Lease {
	t.Helper()
	held, acquired := lease(o, ttl)
	for deadline := time.Now().Add(10 * time.Second); !acquired; held, acquired = lease(o, ttl) {
		if time.Now().After(deadline) {
			t.Fatal("a lease did not expire")
		}
	}
	return held
}

func wantHeld(t *testing.T, l robotscache.Lease, want bool) {
	t.Helper()
	if held, err := l.Renew(t.Context()); err != nil || held != want {
		t.Errorf("renewing: held %v, %v; want %v", held, err, want)
	}
}
