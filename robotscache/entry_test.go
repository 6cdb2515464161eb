package robotscache_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

// Zero values deny access.
func TestEntry_ZeroDenies(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]*robotscache.Entry{
		"nil":         nil,
		"zero":        {},
		"zero record": robotscache.NewEntry(fetch.Record{}, robotscache.Interpretation{}),
		"rules without their text": robotscache.NewEntry(fetch.Record{
			State: fetch.StateRules, SHA256: [32]byte{1}, FetchedAt: time.Now(), FreshUntil: time.Now().Add(time.Hour),
		}, robotscache.Interpretation{}),
	} {
		v := e.View(time.Now())
		if v.Access != fetch.AccessDeny || v.Rules != nil {
			t.Errorf("%s: View = %+v, want access denied without rules", name, v)
		}
		if v.Rules.Match([]string{"Bot"}, "/").Allowed {
			t.Errorf("%s: its rules allow /", name)
		}
	}
}

// A view has the text that applies at the age of the record.
func TestEntry_View(t *testing.T) {
	t.Parallel()
	p := fetch.Policy{}.Complete()
	p.Mode = fetch.ModeGoogle
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := storetest.Rules(example(1), someRules, born)
	failing := p.Next(good, failure(), born.Add(23*time.Hour))
	lost := p.Next(failing, failure(), born.Add(25*time.Hour))
	absent := p.Next(good, fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404}, born.Add(time.Hour))

	for _, test := range []struct {
		name   string
		record fetch.Record
		after  time.Duration
		access fetch.Access
		state  fetch.State
		text   bool
		retry  bool
	}{
		{"rules", good, time.Hour, fetch.AccessRules, fetch.StateRules, true, false},
		{"rules past their time", good, 24 * time.Hour, fetch.AccessDeny, fetch.StateRules, false, false},
		{"rules with a failed refresh", failing, 23*time.Hour + time.Minute, fetch.AccessRules, fetch.StateRules, true, true},
		{"the same past its time", failing, 24 * time.Hour, fetch.AccessDeny, fetch.StateUnreachable, false, true},
		{"the same after 12 hours", failing, 35 * time.Hour, fetch.AccessLastGood, fetch.StateUnreachable, true, true},
		{"unreachable", lost, 26 * time.Hour, fetch.AccessDeny, fetch.StateUnreachable, false, true},
		{"unreachable for 12 hours", lost, 35 * time.Hour, fetch.AccessLastGood, fetch.StateUnreachable, true, true},
		{"absent", absent, 2 * time.Hour, fetch.AccessAllow, fetch.StateAbsent, false, false},
	} {
		v := robotscache.NewEntry(test.record, robotscache.Interpretation{Policy: p}).View(born.Add(test.after))
		if v.Access != test.access || v.State != test.state || (v.Rules != nil) != test.text || v.NextAttempt.IsZero() == test.retry {
			t.Errorf("%s: View = %+v", test.name, v)
		}
		if test.text && (v.SHA256 != good.SHA256 || !v.FetchedAt.Equal(born)) {
			t.Errorf("%s: View does not have the text of %v: %+v", test.name, born, v)
		}
		if !test.text && v.SHA256 != [32]byte{} {
			t.Errorf("%s: View has a text that does not apply: %+v", test.name, v)
		}
	}
}

// A last good copy is compiled once, however many callers need it at once.
func TestEntry_LastGoodIsCompiledOnce(t *testing.T) {
	p := fetch.Policy{Mode: fetch.ModeStale}
	born := time.Now()
	r := p.Next(storetest.Rules(example(1), someRules, born), failure(), born.Add(25*time.Hour))
	e := robotscache.NewEntry(r, robotscache.Interpretation{Policy: p})
	now := born.Add(26 * time.Hour)
	first := e.View(now).Rules
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if e.View(now).Rules != first {
				t.Error("the text was compiled again")
			}
		})
	}
	wg.Wait()
	if n := testing.AllocsPerRun(100, func() { e.View(now) }); n != 0 {
		t.Errorf("View allocates %v times, want 0", n)
	}
}

// An entry counts for the memory that it takes, within a fifth: the allocator rounds sizes.
func TestEntry_CostIsRealBytes(t *testing.T) {
	const n = 2000
	for name, make := range map[string]func(i int) fetch.Record{
		"a text of 1 KiB": func(i int) fetch.Record { return benchRecord(i, 40) },
		"a text of 8 KiB": func(i int) fetch.Record { return benchRecord(i, 330) },
		"no text": func(i int) fetch.Record {
			return fetch.Policy{}.Next(fetch.Record{Origin: example(i)}, failure(), time.Now())
		},
	} {
		c, err := robotscache.New(robotscache.Config{Store: newMemory(), Fetcher: &site{}, MaxSize: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		var cost int64
		for i := range n {
			e := robotscache.NewEntry(make(i), robotscache.Interpretation{})
			cost += e.Cost()
			c.PutHot(e)
		}
		c.WaitHot()
		held := heap() - before
		if ratio := float64(cost) / float64(held); ratio < 0.8 || ratio > 1.2 {
			t.Errorf("%s: counted %d bytes for %d bytes of memory: ratio %.2f, want 0.8 to 1.2", name, cost/n, held/n, ratio)
		} else {
			t.Logf("%s: %d bytes counted, %d held: %.2f", name, cost/n, held/n, ratio)
		}
		runtime.KeepAlive(c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func benchRecord(i, rules int) fetch.Record {
	text := someRules
	for j := range rules {
		text += "Disallow: /" + example(i*j).Host + "\n"
	}
	return storetest.Rules(example(i), text, time.Now())
}

// TestEntry_Rules checks that the rules of the last good text are read with the options of the
// cache, even when it does not apply.
func TestEntry_Rules(t *testing.T) {
	t.Parallel()
	o, err := origin.Parse("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	text := fetch.Copy{Body: []byte("User-agent: *\nDisallow: /x/\nAllow: /x/index.html\n")}
	r := fetch.Record{Origin: o, State: fetch.StateUnreachable, UnreachableSince: time.Unix(1, 0), LastGood: &text}
	for _, indexHTML := range []bool{false, true} {
		e := robotscache.NewEntry(r, robotscache.Interpretation{IndexHTML: indexHTML})
		if v := e.View(time.Unix(2, 0)); v.Access != fetch.AccessDeny || v.Rules != nil {
			t.Errorf("View gives %v, want access denied", v.Access)
		}
		if m := e.Rules().Match([]string{"bot"}, "/x/"); m.Allowed != indexHTML {
			t.Errorf("indexHTML %t: Match of /x/ = %+v", indexHTML, m)
		}
	}
	absent := robotscache.NewEntry(fetch.Record{State: fetch.StateAbsent}, robotscache.Interpretation{})
	if (*robotscache.Entry)(nil).Rules() != nil || absent.Rules() != nil {
		t.Error("Rules without a text are not nil")
	}
}

// Derive reads only the text that applies, once: a file that is no longer available counts as
// missing.
func TestEntry_Derive(t *testing.T) {
	t.Parallel()
	p := fetch.Policy{}.Complete()
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := storetest.Rules(example(1), someRules, born)
	absent := p.Next(good, fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404}, born)
	reads := 0
	read := func(text []byte) any { reads++; return string(text) }
	e := robotscache.NewEntry(good, robotscache.Interpretation{Policy: p})
	for range 2 {
		if got := e.Derive(born.Add(time.Hour), read); got != someRules {
			t.Errorf("Derive = %v, want the rules", got)
		}
	}
	for name, got := range map[string]any{
		"past its time": e.Derive(born.Add(25*time.Hour), read),
		"absent":        robotscache.NewEntry(absent, robotscache.Interpretation{Policy: p}).Derive(born, read),
		"none":          (*robotscache.Entry)(nil).Derive(born, read),
	} {
		if got != nil {
			t.Errorf("%s: Derive = %v, want nil", name, got)
		}
	}
	if reads != 1 {
		t.Errorf("the text was read %d times, want 1", reads)
	}
}
