package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// allow returns an exception from now on, for a day.
func allow(id, value string) Stop {
	return Stop{ID: id, Scope: StopAllow, Value: value, By: "ada", Ticket: "OPS-7", At: now, Until: now.Add(24 * time.Hour)}
}

// TestAllowCovers checks to which requests an exception at run time applies, and until when.
func TestAllowCovers(t *testing.T) {
	t.Parallel()
	var k Stops
	for _, order := range []Stop{allow("a", "Acme@*.SHOP.test:443 /b /a"), allow("b", "Acme@news.test"), allow("c", "news bot@news.test /x y")} {
		if err := k.Set(order); err == nil != (order.ID != "c") {
			t.Fatalf("%v: %v", order, err)
		}
	}
	const limit = 48 * time.Hour
	end := now.Add(24 * time.Hour)
	for _, tt := range []struct {
		origin, path, agent string
		at                  time.Time
		limit               time.Duration
		want                string
	}{
		{"https://a.shop.test", "/a/1", "acme", now, limit, "a"},
		{"https://a.shop.test", "/b", "Acme", end.Add(-1), limit, "a"},
		{"https://a.shop.test", "/b", "Acme", end, limit, ""},
		{"https://a.shop.test", "/c", "Acme", now, limit, ""},
		{"https://a.shop.test", "/a/../c", "Acme", now, limit, ""},
		{"https://a.shop.test", "//a", "Acme", now, limit, ""},
		{"https://a.shop.test", "", "Acme", now, limit, ""}, // a blind tunnel
		{"https://a.shop.test", "/a", "Other", now, limit, ""},
		{"https://a.shop.test", "/a", "", now, limit, ""},
		{"https://shop.test", "/a", "Acme", now, limit, ""},
		{"http://a.shop.test", "/a", "Acme", now, limit, ""},
		{"http://news.test", "", "Acme", now, limit, "b"},
		{"http://news.test", "/x", "Acme", now, limit, "b"},
		{"http://news.test", "/x", "Acme", now.Add(time.Hour - 1), time.Hour, "b"}, // limited by the gateway
		{"http://news.test", "/x", "Acme", now.Add(time.Hour), time.Hour, ""},
		{"http://news.test", "/x", "Acme", now, 0, ""}, // exceptions are off
		{"http://news.test", "/x", "Acme", now.Add(-maxAhead), limit, "b"},
		{"http://news.test", "/x", "Acme", now.Add(-maxAhead - 1), limit, ""}, // by a wrong clock
	} {
		o := mustOrigin(t, tt.origin)
		got, ok := k.Exempt(o, tt.path, tt.agent, tt.at, tt.limit)
		if got.ID != tt.want || ok != (tt.want != "") || ok && got.Until.After(now.Add(tt.limit)) {
			t.Errorf("%+v: Exempt returned %v", tt, got)
		}
		if stop, stopped := k.Match(o, tt.agent); stopped {
			t.Errorf("%+v: stopped by %v", tt, stop)
		}
	}
	if _, ok := (*Stops)(nil).Exempt(mustOrigin(t, "http://news.test"), "/", "Acme", now, limit); ok {
		t.Error("nil Stops make an exception")
	}
	for at, want := range map[time.Time]int{now: 2, end.Add(-1): 2, end: 0, now.Add(-maxAhead): 2, now.Add(-maxAhead - 1): 0} {
		if got := k.InForce(at, limit); len(got) != want || want > 0 && !got[0].Until.Equal(end) {
			t.Errorf("at %v, %v are in force, want %d", at, got, want)
		}
	}
	if ahead := k.InForce(now.Add(-time.Minute), 0); len(ahead) != 0 { // the issuer's clock is ahead
		t.Errorf("with exceptions off, %v are in force before they were issued", ahead)
	}
	if short, none := k.InForce(now, time.Hour), k.InForce(now, 0); len(short) != 2 || !short[0].Until.Equal(now.Add(time.Hour)) || len(none) != 0 || len(k.List()) != 2 {
		t.Errorf("with a limit of an hour %v, with exceptions off %v", short, none)
	}
}

// TestAllowIsComplete checks that an exception must have an author, a ticket and an end.
func TestAllowIsComplete(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Stop){
		"":                          func(*Stop) {},
		"want by and ticket":        func(s *Stop) { s.By = " " },
		"an author and a ticket":    func(s *Stop) { s.Ticket = "" },
		"is over":                   func(s *Stop) { s.Until = s.At },
		"until ":                    func(s *Stop) { s.Until = time.Time{} },
		"lines of up to":            func(s *Stop) { s.Ticket = "a\nb" },
		"want AGENT@PATTERN":        func(s *Stop) { s.Value = "shop.test" },
		"want a name":               func(s *Stop) { s.Value = "@shop.test" },
		"host pattern":              func(s *Stop) { s.Value = "Acme@.shop.test" },
		"servers resolve it":        func(s *Stop) { s.Value = "Acme@shop.test /a/../b" },
		"without * and #":           func(s *Stop) { s.Value = "Acme@shop.test /a*" },
		"does not start with":       func(s *Stop) { s.Value = "Acme@shop.test /a b" },
		"17 paths are more than 16": func(s *Stop) { s.Value += manyPaths(17) },
	} {
		order := allow("a", "Acme@shop.test")
		change(&order)
		_, err := order.Canonical()
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	order, err := NewAllow("Acme", "SHOP.test", []string{"/b c", "/a", "/a"}, "2026-12-31")
	if err != nil {
		t.Fatal(err)
	}
	if order, err = order.Canonical(); err != nil || order.Value != "Acme@shop.test /a /b%20c" || !order.Until.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("Canonical returned %+v, error %v", order, err)
	}
}

func manyPaths(n int) (paths string) {
	for i := range n {
		paths += fmt.Sprint(" /", i)
	}
	return paths
}

// enforcerWith returns an enforcer for a site with the rules robots, with a policy and orders.
func enforcerWith(t *testing.T, policy PolicyConfig, orders ...Stop) *Enforcer {
	t.Helper()
	var k Stops
	for _, order := range orders {
		if err := k.Set(order); err != nil {
			t.Fatal(err)
		}
	}
	e := newEnforcer(siteOf(rules(robots), defaults), mustPolicy(t, policy), &k)
	e.AllowFor = 48 * time.Hour
	return e
}

// TestAllowDecides checks that an exception at run time is only one from robots.txt. Stops win,
// earlier and later ones, and so does the configuration's deny list.
func TestAllowDecides(t *testing.T) {
	t.Parallel()
	stop := func(scope StopScope, value string, at time.Duration) Stop {
		return Stop{ID: "stop", Scope: scope, Value: value, At: now.Add(at)}
	}
	for _, tt := range []struct {
		name   string
		orders []Stop
		policy PolicyConfig
		want   Reason
	}{
		{"nothing", nil, PolicyConfig{}, ReasonDisallowed},
		{"an exception", []Stop{allow("a", "acme@shop.test /private")}, PolicyConfig{}, ReasonException},
		{"of another agent", []Stop{allow("a", "other@shop.test")}, PolicyConfig{}, ReasonDisallowed},
		{"for another path", []Stop{allow("a", "acme@shop.test /public")}, PolicyConfig{}, ReasonDisallowed},
		{"a later stop", []Stop{allow("a", "acme@shop.test"), stop(StopHost, "shop.test", 1)}, PolicyConfig{}, ReasonKillSwitch},
		{"an earlier stop", []Stop{stop(StopAgentHost, "acme@*", -1), allow("a", "acme@shop.test")}, PolicyConfig{}, ReasonKillSwitch},
		{"denied", []Stop{allow("a", "acme@shop.test")}, PolicyConfig{Deny: []string{"shop.test"}}, ReasonOperatorDeny},
		{"off", []Stop{allow("a", "acme@shop.test")}, PolicyConfig{Mode: ModeOff}, ReasonRobotsOff},
		{"of the configuration too", []Stop{allow("a", "acme@shop.test")}, PolicyConfig{Exceptions: []Exception{{Hosts: []string{"shop.test"}}}}, ReasonException},
	} {
		e := enforcerWith(t, tt.policy, tt.orders...)
		d := ask(t, e, crawler(t, "acme/1.0"), "http://shop.test/private")
		if d.Reason != tt.want || d.Allowed != tt.want.Allows() {
			t.Errorf("%s: %s, want %s", tt.name, d.Reason, tt.want)
		}
		r := d.Record()
		if ordered := tt.name == "an exception"; (r.ExceptionOrder != "") != ordered || ordered &&
			(r.Exception != "order a, by ada, ticket OPS-7, until 2026-11-22T12:00:00Z: acme@shop.test /private" ||
				r.ExceptionBy != "ada" || r.ExceptionTicket != "OPS-7" || !r.ExceptionUntil.Time().Equal(now.Add(24*time.Hour))) {
			t.Errorf("%s: the record of the exception is %+v", tt.name, r)
		}
	}
}

// TestExceptionEndsWhileWaiting checks that a request that waits does not outlive the exception that
// let it pass: the time of the exception, the longest time of an order, or an order that is lifted.
func TestExceptionEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	order := allow("a", "acme@shop.test /private")
	until := now.Add(time.Hour).Format(time.RFC3339)
	for _, tt := range []struct {
		name   string
		orders []Stop
		policy PolicyConfig
		wait   time.Duration
		lift   bool
		want   bool // it is still exempt
	}{
		{"just before the end of an order", []Stop{order}, PolicyConfig{}, 24*time.Hour - 1, false, true},
		{"at the end of an order", []Stop{order}, PolicyConfig{}, 24 * time.Hour, false, false},
		{"a lifted order", []Stop{order}, PolicyConfig{}, 0, true, false},
		{"a lifted order of two", []Stop{order, allow("b", "acme@shop.test")}, PolicyConfig{}, 0, true, true},
		{"before the end in the configuration", nil, PolicyConfig{Exceptions: []Exception{{Hosts: []string{"shop.test"}, Until: until}}}, time.Hour - 1, false, true},
		{"after the end in the configuration", nil, PolicyConfig{Exceptions: []Exception{{Hosts: []string{"shop.test"}, Until: until}}}, time.Hour, false, false},
		{"no exception", nil, PolicyConfig{Mode: ModeOff}, time.Hour, false, true},
	} {
		e := enforcerWith(t, tt.policy, tt.orders...)
		d := ask(t, e, crawler(t, "acme/1.0"), "http://shop.test/private")
		if !d.Allowed {
			t.Fatalf("%s: %s", tt.name, d.Reason)
		}
		if tt.lift {
			if err := e.Stops.Update(func(s StopSet) (StopSet, error) {
				s, _, _ = s.Lift(order, Lift{By: "ada", At: now})
				return s, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		e.Now = func() time.Time { return now.Add(tt.wait) }
		err := e.StillExempt(&d, "/private")
		if (err == nil) != tt.want {
			t.Errorf("%s: the error is %v", tt.name, err)
		}
		if err == nil {
			continue
		}
		if again := d.RefuseSlot(t.Context(), err); again.Allowed || again.Reason != ReasonRateLimited || again.RetryAfter != time.Second {
			t.Errorf("%s: the refusal is %s, Retry-After %s", tt.name, again.Reason, again.RetryAfter)
		}
	}
}

// TestAllowIsKept checks that the stored form keeps exceptions apart from stops, so that an earlier
// release reads only the stops.
func TestAllowIsKept(t *testing.T) {
	t.Parallel()
	set, err := StopSet{}.Add(allow("b", "Acme@shop.test /a"))
	if err == nil {
		set, err = set.Add(Stop{ID: "a", Scope: StopAll, At: now})
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(set)
	const want = `{"version":2,"stops":[{"id":"a","scope":"all","at":"2026-11-21T12:00:00Z"}],"allowed":[{"id":"b","scope":"allow",` +
		`"value":"Acme@shop.test /a","by":"ada","at":"2026-11-21T12:00:00Z","ticket":"OPS-7","until":"2026-11-22T12:00:00Z"}]}`
	if err != nil || string(data) != want {
		t.Errorf("stored as %[2]s, error %[1]v, want %[3]s", err, data, want)
	}
	var kept StopSet
	if err := json.Unmarshal(data, &kept); err != nil || len(kept.Held) != 2 || kept.Held[0].ID != "a" || kept.Held[1] != set.Held[0] {
		t.Errorf("read back with error %v: %+v", err, kept)
	}
}

// TestEachKindHasItsPlaces checks that exceptions never keep out a stop, that a stop of everything
// always fits, here and from other gateways, and that exceptions free their places after their end.
func TestEachKindHasItsPlaces(t *testing.T) {
	t.Parallel()
	host := func(id string) Stop { return Stop{ID: id, Scope: StopHost, Value: id + ".test", At: now} }
	full := func(name string, n int) (set StopSet) {
		for i := range n {
			id := fmt.Sprint(name, i)
			set.Held = append(set.Held, allow("a-"+id, "Acme@"+id+".test"))
			set.Held = append(set.Held, host("s-"+id))
		}
		return set
	}
	set := full("h", maxStops)
	everything := Stop{ID: "all", Scope: StopAll, At: now}
	for _, tt := range []struct {
		order Stop
		want  error
	}{
		{allow("more", "Acme@more.test"), ErrTooManyStops},
		{allow("again", "Acme@h1.test"), nil},
		{host("more"), ErrTooManyStops},
		{Stop{ID: "again", Scope: StopHost, Value: "s-h1.test", At: now}, nil},
		{everything, nil},
	} {
		if _, err := set.Add(tt.order); !errors.Is(err, tt.want) {
			t.Errorf("Add(%v) = %v, want %v", tt.order, err, tt.want)
		}
	}
	allowed := StopSet{Held: slices.DeleteFunc(slices.Clone(set.Held), func(s Stop) bool { return s.Scope != StopAllow })}
	if _, err := allowed.Add(host("stop")); err != nil {
		t.Errorf("a stop beside exceptions alone: %v", err)
	}
	late := allow("late", "Acme@more.test")
	late.At = late.Until.Add(endedKept)
	late.Until = late.At.Add(time.Hour)
	if after, err := allowed.Add(late); err != nil || len(after.Held) != 1 || after.Held[0].ID != "late" || len(after.Lifted) != maxStops {
		t.Errorf("after the exceptions' end: %d held, %d lifted, error %v", len(after.Held), len(after.Lifted), err)
	}
	others := full("o", maxMerged)
	others.Held = append(others.Held, everything)
	if merged, err := set.Merge(others, now); !errors.Is(err, ErrTooManyStops) || merged.counts() != [3]int{maxMerged, 1, maxMerged} {
		t.Errorf("Merge: %v orders, error %v", merged.counts(), err)
	}
}

// TestFullSetsAreRead checks that every set that can be held can be read again.
func TestFullSetsAreRead(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[int]bool{maxMerged: false, maxMerged + 1: true} {
		f := stopsFile{Version: stopsFileVersion, Stops: make([]Stop, 1), Allowed: make([]Stop, allowed)}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if err = new(StopSet).UnmarshalJSON(data); errors.Is(err, ErrTooManyStops) != want || err == nil { // an empty order is invalid
			t.Errorf("reading %d exceptions: %v", allowed, err)
		}
	}
}

// TestSetsMergeInAnyOrder checks that all gateways come to hold the same set, in whatever order
// they give, lift and merge. An order holds unless a gateway that had it lifted it, or it ended
// long ago.
func TestSetsMergeInAnyOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		sets := make([]StopSet, 3)
		given, lifted := map[string]Stop{}, map[string]bool{}
		for i := range 60 {
			set := &sets[random.IntN(len(sets))]
			at := now.Add(time.Duration(i) * time.Hour)
			order := Stop{ID: fmt.Sprint("o-", i), Scope: StopHost, Value: fmt.Sprintf("h%d.test", random.IntN(3)), At: at}
			if random.IntN(2) == 0 {
				order = allow(order.ID, "Acme@"+order.Value+[]string{"", " /a", " /a /b"}[random.IntN(3)])
				order.At, order.Until = at, at.Add(time.Duration(1+random.IntN(40))*time.Hour)
			}
			var err error
			switch random.IntN(4) {
			case 0, 1:
				given[order.ID] = order
				*set, err = set.Add(order)
			case 2:
				*set, _, _ = set.Lift(order, Lift{By: "bob", At: at})
			default:
				*set, err = set.Merge(sets[random.IntN(len(sets))], at)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		end := now.Add(70 * time.Hour)
		for _, set := range sets {
			for id, lift := range set.Lifted {
				lifted[id] = true
				if lift.By == endedBy && !given[id].Ended(end.Add(-endedKept)) {
					t.Fatalf("%v was lifted at its end, %v", given[id], lift)
				}
			}
		}
		var all [6]StopSet
		for i, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for _, n := range append(order, order[0]) {
				data, _ := json.Marshal(sets[n])
				var kept StopSet
				if err := json.Unmarshal(data, &kept); err != nil {
					t.Fatal(err)
				}
				all[i], _ = all[i].Merge(kept, end)
			}
			slices.SortFunc(all[i].Held, Stop.compare) // a set has no order
			if !slices.Equal(all[i].Held, all[0].Held) || !maps.EqualFunc(all[i].Lifted, all[0].Lifted, func(a, b Lift) bool { return a.By == b.By && a.At.Equal(b.At) }) {
				t.Fatalf("merged in the order %v: %v, want %v", order, all[i], all[0])
			}
		}
		for id, order := range given {
			held := slices.ContainsFunc(all[0].Held, order.hasID)
			if want := !lifted[id] && !order.Ended(end.Add(-endedKept)); held != want {
				t.Fatalf("%s held %v, want %v: %v", id, held, want, order)
			}
		}
	}
}

// BenchmarkExempt looks up an exception at run time among many, and among none beside a stop.
func BenchmarkExempt(b *testing.B) {
	many := StopSet{Held: []Stop{{ID: "s", Scope: StopHost, Value: "other.test", At: now}}}
	for i := range 1000 {
		many.Held = append(many.Held, allow(fmt.Sprint("a", i), fmt.Sprintf("Acme@h%d.shop.test /feed", i)))
	}
	o := mustOrigin(b, "https://h7.shop.test")
	for name, set := range map[string]StopSet{"none": {Held: many.Held[:1]}, "1000": many} {
		var k Stops
		_ = k.Update(func(StopSet) (StopSet, error) { return set, nil })
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				k.Exempt(o, "/feed/1", "Acme", now, time.Hour)
			}
		})
	}
}
