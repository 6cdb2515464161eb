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

// liftFrom lifts an order of a kill switch.
func liftFrom(k *KillSwitch, scope KillScope, value string) (order Kill, found bool) {
	order, err := Kill{Scope: scope, Value: value}.Canonical()
	if err != nil {
		return Kill{}, false
	}
	_ = k.Update(func(o Orders) (Orders, error) {
		o, order, found = o.Lift(order, Lift{By: "eve", At: now})
		return o, nil
	})
	return order, found
}

// restore has a kill switch hold what was stored.
func restore(k *KillSwitch, data []byte) error {
	return k.Update(func(o Orders) (Orders, error) {
		err := o.UnmarshalJSON(data)
		return o, err
	})
}

func TestKillSwitch(t *testing.T) {
	t.Parallel()
	var k KillSwitch
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
			t.Errorf("stopped %q, want %q; orders: %v", got, want, k.List())
		}
	}
	stopped("....")
	set := func(order Kill) {
		t.Helper()
		if err := k.Set(order); err != nil {
			t.Fatal(err)
		}
	}
	set(Kill{Scope: KillHost, Value: "*.EXAMPLE.com", By: "eve", Reason: "complaint 12", At: now})
	stopped("x.x.")
	if order, _ := k.Match(site, ""); order.Value != "*.example.com" || order.By != "eve" || order.Reason != "complaint 12" || !order.At.Equal(now) {
		t.Errorf("order %+v", order)
	}
	set(Kill{Scope: KillAgent, Value: "acme"})
	stopped("x.xx")
	set(Kill{Scope: KillAll})
	stopped("xxxx")
	if order, ok := liftFrom(&k, KillAll, ""); !ok || order.Scope != KillAll {
		t.Errorf("lifted %+v %t", order, ok)
	}
	stopped("x.xx")
	if _, ok := liftFrom(&k, KillAgent, "ACME"); !ok {
		t.Error("the agent's order was not found in another case")
	}
	stopped("x.x.")
	if _, ok := liftFrom(&k, KillHost, "example.com"); ok {
		t.Error("another pattern was lifted")
	}
	set(Kill{Scope: KillHost, Value: "*.example.com", Reason: "again"})
	if list := k.List(); len(list) != 1 || list[0].Reason != "again" {
		t.Errorf("an order with the same value does not replace: %+v", list)
	}
	if _, ok := liftFrom(&k, KillHost, "*.example.COM"); !ok {
		t.Error("the host's order was not found in another case")
	}
	stopped("....")
	if _, ok := liftFrom(&k, "nonsense", "x"); ok {
		t.Error("nonsense was lifted")
	}
	if _, ok := (*KillSwitch)(nil).Match(other, "a"); ok {
		t.Error("no kill switch stops")
	}
}

func TestKillSwitchRefuses(t *testing.T) {
	t.Parallel()
	var k KillSwitch
	for _, order := range []Kill{
		{},
		{Scope: "everything"},
		{Scope: KillAll, Value: "x"},
		{Scope: KillHost},
		{Scope: KillHost, Value: ".x"},
		{Scope: KillAgent},
		{Scope: KillAgent, Value: "a\n"},
		{Scope: KillAgent, Value: strings.Repeat("a", 129)},
		{Scope: KillAll, By: "a\r"},
		{Scope: KillAll, Reason: strings.Repeat("a", 201)},
	} {
		if err := k.Set(order); err == nil {
			t.Errorf("%+v: accepted", order)
		}
	}
	if len(k.List()) != 0 {
		t.Error("a refused order holds")
	}
}

func TestKillSwitchIsBounded(t *testing.T) {
	t.Parallel()
	var k KillSwitch
	f := ordersFile{Version: ordersFileVersion}
	for i := range maxKills {
		f.Kills = append(f.Kills, Kill{ID: fmt.Sprint(i), Scope: KillAgent, Value: fmt.Sprint("a", i)})
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := restore(&k, data); err != nil {
		t.Fatal(err)
	}
	if err := k.Set(Kill{Scope: KillAgent, Value: "more"}); !errors.Is(err, ErrTooManyKills) {
		t.Errorf("got %v", err)
	}
	if err := k.Set(Kill{Scope: KillAgent, Value: "A7"}); err != nil {
		t.Errorf("replacing one: %v", err)
	}
}

func TestKillSwitchSurvivesRestart(t *testing.T) {
	t.Parallel()
	var before, after KillSwitch
	for _, order := range []Kill{
		{ID: "A-1", Scope: KillHost, Value: "bücher.example:8080", By: "eve", Reason: "why", At: now},
		{ID: "A-2", Scope: KillAgent, Value: "Acme", At: now.Add(time.Second)},
	} {
		if err := before.Set(order); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(before.Orders())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"kills":[{"id":"A-1","scope":"host","value":"xn--bcher-kva.example:8080","by":"eve","reason":"why",` +
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
	if data, err := json.Marshal(new(KillSwitch).Orders()); err != nil || string(data) != `{"version":1,"kills":[]}` {
		t.Errorf("empty: %s %v", data, err)
	}
}

// What cannot be read changes nothing: half of the orders would be none.
func TestKillSwitchRefusesDamagedState(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `null1`, `[]`, `{}`, `{"version":2,"kills":[]}`, `{"version":1,"kills":[{"id":"a","scope":"al"}]}`,
		`{"version":1,"kills":[{"id":"a","scope":"host","value":"a..b"}]}`,
		`{"version":1,"kills":[{"id":"a","scope":"all"},{"id":"b","scope":"host"}]}`,
		`{"version":1,"kills":[{"scope":"all"}]}`,
		`{"version":1,"kills":[{"id":"a b","scope":"all"}]}`,
		`{"version":1,"kills":[{"id":"a","scope":"all"},{"id":"a","scope":"agent","value":"x"}]}`,
		`{"version":1,"kills":[],"lifted":{"":{"at":"2026-11-21T12:00:00Z"}}}`,
	} {
		var k KillSwitch
		if err := k.Set(Kill{Scope: KillAgent, Value: "kept"}); err != nil {
			t.Fatal(err)
		}
		if err := restore(&k, []byte(data)); err == nil {
			t.Errorf("%s: accepted", data)
		}
		if list := k.List(); len(list) != 1 || list[0].Value != "kept" {
			t.Errorf("%s: changed to %+v", data, list)
		}
	}
}

func TestKillSwitchConcurrently(t *testing.T) {
	t.Parallel()
	var k KillSwitch
	o := mustOrigin(t, "http://h5.example")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				host := fmt.Sprintf("h%d.example", (g*50+i)%10)
				if err := k.Set(Kill{Scope: KillHost, Value: host}); err != nil {
					t.Error(err)
				}
				k.Match(o, "a")
				liftFrom(&k, KillHost, host)
			}
		})
	}
	wg.Wait()
	// Each writer ends with lifting: an order can only be left where two writers had one host.
	for _, order := range k.List() {
		liftFrom(&k, order.Scope, order.Value)
	}
	if _, stopped := k.Match(o, ""); stopped {
		t.Error("still stopped")
	}
}

// TestMergeIsBounded: no gateway holds more orders than fit, and none of its own is given up for
// others.
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	var here, there Orders
	here.Held = []Kill{{ID: "mine", Scope: KillAll, At: now.Add(time.Hour)}}
	for i := range maxMerged {
		there.Held = append(there.Held, Kill{ID: fmt.Sprint("o", i), Scope: KillAgent, Value: fmt.Sprint(i), At: now})
	}
	merged, err := here.Merge(there, now)
	if !errors.Is(err, ErrTooManyKills) || len(merged.Held) != maxMerged || merged.Held[maxMerged-1].ID != "mine" {
		t.Errorf("%d orders, %v", len(merged.Held), err)
	}
	here.Lifted = make(map[string]Lift)
	for i := range maxMerged + 1 {
		here.Lifted[fmt.Sprint("l", i)] = Lift{At: now.Add(time.Duration(i) * time.Second)}
	}
	merged, _ = here.Merge(Orders{}, now)
	if _, oldest := merged.Lifted["l0"]; oldest || len(merged.Lifted) != maxMerged {
		t.Errorf("%d lifts, the oldest among them: %v", len(merged.Lifted), oldest)
	}
	if _, err := here.Give(Kill{ID: "mine", Scope: KillAgent, Value: "x"}); err == nil {
		t.Error("an id is given twice")
	}
}
