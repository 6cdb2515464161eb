package enforce

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestSince checks that the difference of two sets is exactly what the earlier one lacks.
func TestSince(t *testing.T) {
	t.Parallel()
	set := func(held, lifted string) (s StopSet) {
		for _, id := range held {
			s.Held = append(s.Held, Stop{ID: string(id), Scope: StopHost, Value: string(id) + ".example"})
		}
		for _, id := range lifted {
			if s.Lifted == nil {
				s.Lifted = map[string]Lift{}
			}
			s.Lifted[string(id)] = Lift{}
		}
		return s
	}
	for _, tt := range []struct{ before, lifted, after, afterLifted, held, lifts string }{
		{"", "", "", "", "", ""},
		{"", "", "ab", "c", "ab", "c"},
		{"ab", "", "abc", "", "c", ""},
		{"ab", "", "cab", "", "c", ""},
		{"abc", "", "bc", "a", "", "a"},
		{"abc", "", "acd", "b", "d", "b"},
		{"abc", "x", "ab", "cx", "", "c"},
		{"abc", "", "cba", "", "", ""},
		{"abc", "", "cdba", "", "d", ""},
		{"abc", "", "d", "abc", "d", "abc"},
		{"ab", "c", "abc", "", "c", ""}, // after 90 days
		{"abc", "", "a", "", "", ""},
	} {
		more := set(tt.after, tt.afterLifted).Since(set(tt.before, tt.lifted))
		want := set(tt.held, tt.lifts)
		if !slices.Equal(more.Held, want.Held) || !maps.Equal(more.Lifted, want.Lifted) {
			t.Errorf("%+v: Since returned %v, want %v", tt, more, want)
		}
	}
}

// TestStopsChangeInParts checks that after any changes stops match as if all had been given at
// once.
func TestStopsChangeInParts(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		var k, other Stops
		for i := range 150 {
			at := now.Add(time.Duration(random.IntN(10)) * time.Second)
			stop := Stop{ID: fmt.Sprint("s-", i), Scope: StopHost, Value: []string{"example.com", "*.example.com", "example.com:8080", "*", "a.example.com"}[random.IntN(5)], At: at}
			switch random.IntN(12) {
			case 0:
				stop.Scope, stop.Value = StopAgent, []string{"Acme", "acme", "Ümit"}[random.IntN(3)]
			case 1:
				stop.Scope, stop.Value = StopAll, ""
			}
			set := []*Stops{&k, &other}[random.IntN(2)]
			switch random.IntN(4) {
			case 0, 1:
				if err := set.Set(stop); err != nil {
					t.Fatal(err)
				}
			case 2:
				_ = set.Update(func(s StopSet) (StopSet, error) { s, _, _ = s.Lift(stop, Lift{At: at}); return s, nil })
			default:
				_ = k.Update(func(s StopSet) (StopSet, error) { return s.Merge(other.All(), now) })
			}
			var fresh Stops
			_ = fresh.Update(func(StopSet) (StopSet, error) { return k.All(), nil })
			for _, raw := range []string{"http://example.com", "http://example.com:8080", "http://b.example.com", "http://a.example.com", "http://example.org"} {
				for _, agent := range []string{"", "ACME", "ümit"} {
					got, stopped := k.Match(mustOrigin(t, raw), agent)
					want, wanted := fresh.Match(mustOrigin(t, raw), agent)
					if got != want || stopped != wanted {
						t.Fatalf("Match(%s, %s) = %v, want %v, of %v", raw, agent, got, want, k.All())
					}
				}
			}
		}
	}
}

// BenchmarkOrder adds a stop, here or from elsewhere, beside many others.
func BenchmarkOrder(b *testing.B) {
	for name, lifted := range map[string]int{"none lifted": 0, "as many lifted": 10_000} {
		many := StopSet{Lifted: map[string]Lift{}}
		for i := range 9_999 {
			many.Held = append(many.Held, Stop{ID: fmt.Sprintf("QX4GK6YVKQ7J5WZNHOBC3M%d", i), Scope: StopHost, Value: fmt.Sprintf("h%d.example", i), At: now})
		}
		for i := range lifted {
			many.Lifted[fmt.Sprintf("QX4GK6YVKQ7J5WZNHOBC3L%d", i)] = Lift{At: now}
		}
		stop := Stop{ID: "new", Scope: StopHost, Value: "new.example", At: now.Add(time.Second)}
		for how, change := range map[string]func(StopSet) (StopSet, error){
			"given":  func(s StopSet) (StopSet, error) { return s.Add(stop) },
			"merged": func(s StopSet) (StopSet, error) { return s.Merge(StopSet{Held: []Stop{stop}}, now) },
		} {
			b.Run(how+", "+name, func(b *testing.B) {
				var k Stops
				_ = k.Update(func(StopSet) (StopSet, error) { return many.Merge(StopSet{}, now) })
				all := k.All()
				for b.Loop() {
					_ = k.Update(change)
					b.StopTimer()
					_ = k.Update(func(StopSet) (StopSet, error) { return all, nil })
					b.StartTimer()
				}
			})
		}
	}
}

// TestAnOlderStopIsMerged checks that merging an older stop does not copy the others, and that the
// list begins with it.
func TestAnOlderStopIsMerged(t *testing.T) {
	t.Parallel()
	var k Stops
	merge := func(id string, at time.Time) (after StopSet) {
		t.Helper()
		other := StopSet{Held: []Stop{{ID: id, Scope: StopHost, Value: id + ".example", At: at}}}
		if err := k.Update(func(s StopSet) (StopSet, error) { return s.Merge(other, now) }); err != nil {
			t.Fatal(err)
		}
		return k.All()
	}
	for i := range 8 {
		merge(fmt.Sprint("a", i), now)
	}
	before := merge("b", now.Add(time.Second)) // makes room for more
	if after := merge("c", now.Add(-time.Hour)); !after.startsAs(before.Held) {
		t.Error("the stops were copied")
	}
	if list := k.List(); len(list) != 10 || list[0].ID != "c" || list[1].ID != "a0" || list[9].ID != "b" {
		t.Errorf("the list is %v", list)
	}
}

// TestSetsThatShareStops checks that two sets made from one have their own stops, and that the
// original stays unchanged.
func TestSetsThatShareStops(t *testing.T) {
	t.Parallel()
	with := func(s StopSet, id string) StopSet {
		after, err := s.Add(Stop{ID: id, Scope: StopHost, Value: id + ".example", At: now})
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	base := with(with(StopSet{}, "a"), "b")
	one, other := with(base, "c"), with(base, "d")
	longer, _ := one.Merge(StopSet{Held: []Stop{{ID: "e", Scope: StopAll, At: now.Add(time.Second)}}}, now)
	_ = append(base.Held, Stop{ID: "x"}) // must not affect the other sets
	for _, tt := range []struct {
		set  StopSet
		want string
	}{{base, "ab"}, {one, "abc"}, {other, "abd"}, {longer, "abce"}, {longer.Since(base), "ce"}, {base.Since(longer), ""}, {other.Since(one), "d"}} {
		got := ""
		for _, stop := range tt.set.Held {
			got += stop.ID
		}
		if got != tt.want {
			t.Errorf("the set has %q, want %q", got, tt.want)
		}
	}
}
