package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// liftFrom lifts a stop of k.
func liftFrom(k *Stops, scope StopScope, value string) (stop Stop, found bool) {
	stop, err := Stop{Scope: scope, Value: value}.Canonical()
	if err != nil {
		return Stop{}, false
	}
	_ = k.Update(func(o StopSet) (StopSet, error) {
		o, stop, found = o.Lift(stop, Lift{By: "eve", At: now})
		return o, nil
	})
	return stop, found
}

// restore replaces the stops of k by a stored set.
func restore(k *Stops, data []byte) error {
	return k.Update(func(o StopSet) (StopSet, error) {
		err := o.UnmarshalJSON(data)
		return o, err
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	var k Stops
	site, other := mustOrigin(t, "https://a.example.com"), mustOrigin(t, "http://other.test")
	stopped := func(want string) {
		t.Helper()
		got := ""
		for _, agent := range []string{"", "Acme"} {
			for _, o := range []string{"https://a.example.com", "http://other.test"} {
				if _, ok := k.Match(mustOrigin(t, o), agent); ok {
					got += "x"
				} else {
					got += "."
				}
			}
		}
		if got != want {
			t.Errorf("Match stops %q, want %q; stops: %v", got, want, k.List())
		}
	}
	stopped("....")
	set := func(stop Stop) {
		t.Helper()
		if err := k.Set(stop); err != nil {
			t.Fatal(err)
		}
	}
	set(Stop{Scope: StopHost, Value: "*.EXAMPLE.com", By: "eve", Reason: "complaint 12", At: now})
	stopped("x.x.")
	if stop, _ := k.Match(site, ""); stop.Value != "*.example.com" || stop.By != "eve" || stop.Reason != "complaint 12" || !stop.At.Equal(now) {
		t.Errorf("Match returned %+v", stop)
	}
	set(Stop{Scope: StopAgent, Value: "acme"})
	stopped("x.xx")
	set(Stop{Scope: StopAll})
	stopped("xxxx")
	if stop, ok := liftFrom(&k, StopAll, ""); !ok || stop.Scope != StopAll {
		t.Errorf("lifting the stop of everything returned %+v, %t", stop, ok)
	}
	stopped("x.xx")
	if _, ok := liftFrom(&k, StopAgent, "ACME"); !ok {
		t.Error("the agent's stop was not found in another case")
	}
	stopped("x.x.")
	if _, ok := liftFrom(&k, StopHost, "example.com"); ok {
		t.Error("another pattern was lifted")
	}
	set(Stop{Scope: StopHost, Value: "*.example.com", Reason: "again"})
	if list := k.List(); len(list) != 1 || list[0].Reason != "again" {
		t.Errorf("a stop with the same value does not replace: %+v", list)
	}
	if _, ok := liftFrom(&k, StopHost, "*.example.COM"); !ok {
		t.Error("the host's stop was not found in another case")
	}
	stopped("....")
	if _, ok := liftFrom(&k, "nonsense", "x"); ok {
		t.Error("a stop of an unknown scope was lifted")
	}
	if _, ok := (*Stops)(nil).Match(other, "a"); ok {
		t.Error("nil Stops stop a request")
	}
}

func TestStopRefuses(t *testing.T) {
	t.Parallel()
	var k Stops
	for _, stop := range []Stop{
		{},
		{Scope: "everything"},
		{Scope: StopAll, Value: "x"},
		{Scope: StopHost},
		{Scope: StopHost, Value: ".x"},
		{Scope: StopAgent},
		{Scope: StopAgent, Value: "a\n"},
		{Scope: StopAgent, Value: strings.Repeat("a", 129)},
		{Scope: StopAll, By: "a\r"},
		{Scope: StopAll, Reason: strings.Repeat("a", 201)},
	} {
		if err := k.Set(stop); err == nil {
			t.Errorf("Set(%+v) succeeded, want an error", stop)
		}
	}
	if len(k.List()) != 0 {
		t.Error("a refused stop is in force")
	}
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	var k Stops
	f := stopsFile{Version: stopsFileVersion}
	for i := range maxStops {
		f.Stops = append(f.Stops, Stop{ID: fmt.Sprint(i), Scope: StopAgent, Value: fmt.Sprint("a", i)})
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := restore(&k, data); err != nil {
		t.Fatal(err)
	}
	if err := k.Set(Stop{Scope: StopAgent, Value: "more"}); !errors.Is(err, ErrTooManyStops) {
		t.Errorf("Set beyond the bound returned %v, want ErrTooManyStops", err)
	}
	if err := k.Set(Stop{Scope: StopAgent, Value: "A7"}); err != nil {
		t.Errorf("replacing a stop: %v", err)
	}
}

func TestStopSurvivesRestart(t *testing.T) {
	t.Parallel()
	var before, after Stops
	for _, stop := range []Stop{
		{ID: "A-1", Scope: StopHost, Value: "bücher.example:8080", By: "eve", Reason: "why", At: now},
		{ID: "A-2", Scope: StopAgent, Value: "Acme", At: now.Add(time.Second)},
	} {
		if err := before.Set(stop); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(before.All())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":2,"stops":[{"id":"A-1","scope":"host","value":"xn--bcher-kva.example:8080","by":"eve","reason":"why",` +
		`"at":"2026-11-21T12:00:00Z"},{"id":"A-2","scope":"agent","value":"Acme","at":"2026-11-21T12:00:01Z"}]}`
	if string(data) != want {
		t.Errorf("stored as %s\nwant      %s", data, want)
	}
	if err := restore(&after, data); err != nil {
		t.Fatal(err)
	}
	if _, stopped := after.Match(mustOrigin(t, "http://xn--bcher-kva.example:8080"), ""); !stopped || len(after.List()) != 2 {
		t.Errorf("after restart: %+v", after.List())
	}
	if data, err := json.Marshal(new(Stops).All()); err != nil || string(data) != `{"version":2,"stops":[]}` {
		t.Errorf("the empty set is stored as %s, error %v", data, err)
	}
}

// A set that cannot be read changes nothing, because half of the stops would be none.
func TestStopRefusesDamagedState(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `null1`, `[]`, `{}`, `{"version":3,"stops":[]}`, `{"version":1,"kills":[{"id":"a","scope":"al"}]}`,
		`{"version":1,"kills":[{"id":"a","scope":"host","value":"a..b"}]}`,
		`{"version":1,"kills":[{"id":"a","scope":"all"},{"id":"b","scope":"host"}]}`,
		`{"version":1,"kills":[{"scope":"all"}]}`,
		`{"version":1,"kills":[{"id":"a b","scope":"all"}]}`,
		`{"version":1,"kills":[{"id":"a","scope":"all"},{"id":"a","scope":"agent","value":"x"}]}`,
		`{"version":1,"kills":[],"lifted":{"":{"at":"2026-11-21T12:00:00Z"}}}`,
	} {
		var k Stops
		if err := k.Set(Stop{Scope: StopAgent, Value: "kept"}); err != nil {
			t.Fatal(err)
		}
		if err := restore(&k, []byte(data)); err == nil {
			t.Errorf("%s was accepted", data)
		}
		if list := k.List(); len(list) != 1 || list[0].Value != "kept" {
			t.Errorf("%s: changed to %+v", data, list)
		}
	}
}

func TestStopConcurrently(t *testing.T) {
	t.Parallel()
	var k Stops
	o := mustOrigin(t, "http://h5.example")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				host := fmt.Sprintf("h%d.example", (g*50+i)%10)
				if err := k.Set(Stop{Scope: StopHost, Value: host}); err != nil {
					t.Error(err)
				}
				k.Match(o, "a")
				liftFrom(&k, StopHost, host)
			}
		})
	}
	wg.Wait()
	// Each writer ends with a lift, so only a host with two writers can have a stop left.
	for _, stop := range k.List() {
		liftFrom(&k, stop.Scope, stop.Value)
	}
	if _, stopped := k.Match(o, ""); stopped {
		t.Error("Match still stops a lifted host")
	}
}

// TestMergeIsBounded checks that a gateway holds no more stops than fit, and that it drops none of
// its own for others.
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	var here, there StopSet
	here.Held = []Stop{{ID: "mine", Scope: StopAgent, Value: "mine", At: now.Add(time.Hour)}}
	for i := range maxMerged {
		there.Held = append(there.Held, Stop{ID: fmt.Sprint("o", i), Scope: StopAgent, Value: fmt.Sprint(i), At: now})
	}
	merged, err := here.Merge(there, now)
	if !errors.Is(err, ErrTooManyStops) || len(merged.Held) != maxMerged || merged.Held[0].ID != "mine" {
		t.Errorf("Merge: %d stops, error %v", len(merged.Held), err)
	}
	here.Lifted = make(map[string]Lift)
	for i := range maxMerged + 1 {
		here.Lifted[fmt.Sprint("l", i)] = Lift{At: now.Add(time.Duration(i) * time.Second)}
	}
	merged, _ = here.Merge(StopSet{}, now)
	if _, oldest := merged.Lifted["l0"]; oldest || len(merged.Lifted) != maxMerged {
		t.Errorf("%d lifts, the oldest among them: %v", len(merged.Lifted), oldest)
	}
	if _, err := here.Add(Stop{ID: "mine", Scope: StopAgent, Value: "x"}); err == nil {
		t.Error("Add accepted an id twice")
	}
}

// TestLiftKeepsItsStop checks that the journal shows a lifted stop, even after a restart and at
// another gateway.
func TestLiftKeepsItsStop(t *testing.T) {
	t.Parallel()
	stop := Stop{ID: "a", Scope: StopHost, Value: "shop.test", By: "ada", Reason: "complaint 7", At: now}
	here, err := StopSet{}.Add(stop)
	if err != nil {
		t.Fatal(err)
	}
	here, _, _ = here.Lift(stop, Lift{By: "bob", At: now.Add(time.Hour)})
	data, err := json.Marshal(here)
	if err != nil {
		t.Fatal(err)
	}
	var kept StopSet
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	there, err := StopSet{Held: []Stop{stop}}.Merge(kept, now.Add(time.Hour))
	if lift := there.Lifted["a"]; err != nil || len(there.Held) != 0 || lift.By != "bob" || lift.Stop == nil || *lift.Stop != stop {
		t.Errorf("error %v, got %+v", err, there)
	}
	var former StopSet
	if err := json.Unmarshal([]byte(`{"version":2,"stops":[],"lifted":{"a":{"by":"bob","at":"2026-11-27T00:00:00Z"}}}`), &former); err != nil || former.Lifted["a"].Stop != nil {
		t.Errorf("the set of an earlier release: error %v, %+v", err, former)
	}
}

// TestStopOfAnAgentAtAHost checks that such a stop applies to nothing else, and that only its own
// name lifts it.
func TestStopOfAnAgentAtAHost(t *testing.T) {
	t.Parallel()
	var k Stops
	if err := k.Set(Stop{Scope: StopAgentHost, Value: "Acme@*.SHOP.test:443", At: now}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		origin, agent string
		want          bool
	}{
		{"https://a.shop.test", "Acme", true},
		{"https://a.shop.test", "aCME", true},
		{"https://a.shop.test", "Acme2", false},
		{"https://a.shop.test", "", false}, // a fetch of robots.txt
		{"http://a.shop.test", "Acme", false},
		{"https://shop.test", "Acme", false},
		{"https://other.test", "Acme", false},
	} {
		stop, got := k.Match(mustOrigin(t, tt.origin), tt.agent)
		if got != tt.want || got && (stop.Value != "Acme@*.shop.test:443" || stop.Agent() != "Acme") {
			t.Errorf("%s at %s: Match returned %v, %t", tt.agent, tt.origin, stop, got)
		}
	}
	for _, other := range []Stop{{Scope: StopHost, Value: "*.shop.test:443"}, {Scope: StopAgent, Value: "Acme"}, {Scope: StopAll}, {Scope: StopAgentHost, Value: "Acme@shop.test"}} {
		if _, found := liftFrom(&k, other.Scope, other.Value); found {
			t.Errorf("%v lifted it", other)
		}
	}
	if _, found := liftFrom(&k, StopAgentHost, "ACME@*.shop.test:443"); !found || len(k.List()) != 0 {
		t.Errorf("it was not lifted: %v", k.List())
	}
	for _, value := range []string{"", "Acme", "@shop.test", "Acme@", "Acme@https://shop.test", "A\x00@shop.test"} {
		if err := k.Set(Stop{Scope: StopAgentHost, Value: value}); err == nil || !strings.Contains(err.Error(), "want AGENT@PATTERN") {
			t.Errorf("%q: %v", value, err)
		}
	}
	err := k.Set(Stop{Scope: StopAgentHost, Value: "curl"})
	if want := `adding a stop: "curl": want AGENT@PATTERN`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
