package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// site returns the origin of a URL.
func site(tb testing.TB, raw string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// sum returns the number of requests that all orders ended.
func sum(ended map[string]int) (all int) {
	for _, n := range ended {
		all += n
	}
	return all
}

// TestStopFollowsTheStore checks that orders are kept beside the store, and that orders found there
// are in force.
func TestStopFollowsTheStore(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	held := func(s *stopState) (hosts []string) {
		for _, order := range s.held.All().Held {
			hosts = append(hosts, order.Value)
		}
		slices.Sort(hosts)
		return hosts
	}
	begin := func(folder string) *Engine {
		t.Helper()
		s := new(stopState)
		if err := s.load(folder); err != nil {
			t.Fatal(err)
		}
		return &Engine{stops: s}
	}
	deny := func(e *Engine, host string) {
		t.Helper()
		if _, err := e.Deny(enforce.Stop{Scope: enforce.StopHost, Value: host, By: "dora", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	deny(begin(second), "earlier.example")
	e := begin(first)
	deny(e, "before.example")
	for range 2 { // opening the same folder again changes nothing
		if err := errors.Join(e.stops.load(second), e.stops.follow(second)); err != nil {
			t.Fatal(err)
		}
	}
	deny(e, "after.example")
	want := []string{"after.example", "before.example", "earlier.example"}
	if got := held(e.stops); !slices.Equal(got, want) {
		t.Errorf("in force are %q, want %q", got, want)
	}
	if got := held(begin(second).stops); !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	if _, found, err := e.Lift(enforce.Stop{Scope: enforce.StopHost, Value: "before.example"}, enforce.Lift{By: "dora", At: time.Now()}); !found || err != nil {
		t.Fatal(found, err)
	}
	if err := e.stops.follow(first); err != nil {
		t.Fatal(err)
	}
	if got := held(begin(first).stops); !slices.Equal(got, []string{"after.example", "earlier.example"}) {
		t.Errorf("back at the first store, %q are in force", got)
	}

	third := t.TempDir()
	if err := os.WriteFile(filepath.Join(third, stopsFile.name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.stops.load(third); err == nil {
		t.Error("load succeeded beside unreadable orders")
	}
	if err := os.WriteFile(filepath.Join(first, stopsFile.name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.stops.load(first); err != nil {
		t.Errorf("loading the current folder again: %v", err)
	}
}

// TestStopsOfFormerFile checks that the stops in a kills.json of 0.1.0 stay in force and move to
// stops.json. A stop that was lifted since then does not return. The remaining kills.json makes
// 0.1.0 refuse to start.
func TestStopsOfFormerFile(t *testing.T) {
	t.Parallel()
	const (
		old = `{"version":1,"kills":[{"id":"A-1","scope":"host","value":"a.example","at":"2026-11-24T12:00:00Z"},` +
			`{"id":"A-2","scope":"all","at":"2026-11-24T12:00:01Z"}]}`
		lifted = `{"version":2,"stops":[{"id":"B-1","scope":"agent","value":"acme","at":"2026-11-25T12:00:00Z"}],` +
			`"lifted":{"A-2":{"at":"%s"}}}`
	)
	for name, tt := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"old file alone": {map[string]string{"kills.json": old}, []string{"A-1", "A-2"}},
		"both files": {
			map[string]string{"kills.json": old, "stops.json": fmt.Sprintf(lifted, time.Now().UTC().Format(time.RFC3339))},
			[]string{"A-1", "B-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for file, text := range tt.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, when := range []string{"at the first start", "at the second"} {
				s := new(stopState)
				if err := s.load(folder); err != nil {
					t.Fatal(err)
				}
				if got := ids(s); !slices.Equal(got, tt.want) {
					t.Errorf("%s: %q are in force, want %q", when, got, tt.want)
				}
				if err := s.follow(folder); err != nil { // like a configuration that becomes current
					t.Fatal(err)
				}
				if got := ids(s); !slices.Equal(got, tt.want) {
					t.Errorf("%s, when current: %q are in force, want %q", when, got, tt.want)
				}
				if files := namesIn(t, folder); !slices.Equal(files, []string{"kills.json", "stops.json"}) {
					t.Errorf("%s: the folder has %q", when, files)
				}
				refusedBefore(t, folder)
			}
		})
	}
}

// refusedBefore checks that 0.1.0 rejects the kills.json of a folder: it requires an id before each
// lift, and its error shows 80 characters of a malformed id.
func refusedBefore(t *testing.T, folder string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "kills.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version int
		Lifted  map[string]enforce.Lift
	}
	if err := json.Unmarshal(text, &file); err != nil || file.Version != 1 || len(file.Lifted) != 1 {
		t.Errorf("kills.json: error %v, %s", err, text)
	}
	for id := range file.Lifted {
		if enforce.IsStopID(id) || len(id) > 80 || !strings.Contains(id, "a later release") {
			t.Errorf("the id of the lift is %q", id)
		}
	}
}

// TestStopsOfDamagedFormerFile checks that a gateway does not start without the stops of 0.1.0, and
// keeps their file.
func TestStopsOfDamagedFormerFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "kills.json"), []byte(`{"version":1,"kills":[{"sco`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(stopState).load(folder); err == nil || !strings.Contains(err.Error(), "kills.json is damaged") {
		t.Errorf("load = %v, want an error about kills.json", err)
	}
	if files := namesIn(t, folder); !slices.Equal(files, []string{"kills.json"}) {
		t.Errorf("the folder has %q", files)
	}
}

// ids returns the ids of the stops in force, in order.
func ids(s *stopState) (ids []string) {
	for _, stop := range s.held.List() {
		ids = append(ids, stop.ID)
	}
	slices.Sort(ids)
	return ids
}

// namesIn returns the files of a folder, without the locks of its writer.
func namesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Type().IsRegular() {
			names = append(names, f.Name())
		}
	}
	return names
}

func TestInFlightStop(t *testing.T) {
	t.Parallel()
	entries := map[string]struct {
		origin, agent string
	}{
		"host":           {"https://example.com", "alpha"},
		"host over http": {"http://example.com:8080", "beta"},
		"subdomain":      {"https://www.example.com", "alpha"},
		"other":          {"https://example.org", "beta"},
		"nobody":         {"https://example.net", ""},
	}
	for _, tt := range []struct {
		order enforce.Stop
		want  []string
	}{
		{enforce.Stop{Scope: enforce.StopHost, Value: "example.com"}, []string{"host", "host over http"}},
		{enforce.Stop{Scope: enforce.StopHost, Value: "*.example.com"}, []string{"subdomain"}},
		{enforce.Stop{Scope: enforce.StopHost, Value: "example.com:8080"}, []string{"host over http"}},
		{enforce.Stop{Scope: enforce.StopAgent, Value: "ALPHA"}, []string{"host", "subdomain"}},
		{enforce.Stop{Scope: enforce.StopAll}, []string{"host", "host over http", "subdomain", "other", "nobody"}},
		{enforce.Stop{Scope: enforce.StopHost, Value: "example.edu"}, nil},
	} {
		t.Run(string(tt.order.Scope)+" "+tt.order.Value, func(t *testing.T) {
			t.Parallel()
			var f register
			contexts := make(map[string]context.Context)
			for name, entry := range entries {
				kind := requestEntry
				if entry.agent == "" {
					kind = fetchEntry
				}
				ctx, e, err := f.enter(t.Context(), &InFlight{kind: kind, origin: site(t, entry.origin), agent: entry.agent}, len(entries))
				if err != nil {
					t.Fatal(err)
				}
				contexts[name] = ctx
				defer e.Leave()
			}
			var stops enforce.Stops
			if n := len(f.stop(&stops)); n != 0 {
				t.Fatalf("without an order, %d requests were stopped", n)
			}
			if err := stops.Set(tt.order); err != nil {
				t.Fatal(err)
			}
			if n := sum(f.stop(&stops)); n != len(tt.want) {
				t.Errorf("%d requests were stopped, want %d", n, len(tt.want))
			}
			for name, ctx := range contexts {
				want := false
				for _, w := range tt.want {
					want = want || w == name
				}
				if got := StoppedBy(ctx) != nil; got != want {
					t.Errorf("%s: stopped %v, want %v (%v)", name, got, want, context.Cause(ctx))
				}
			}
		})
	}
}

func TestInFlightTellsWho(t *testing.T) {
	t.Parallel()
	var f register
	ctx, e, _ := f.enter(t.Context(), &InFlight{origin: site(t, "https://example.com"), agent: "alpha"}, 1)
	defer e.Leave()
	var stops enforce.Stops
	for _, order := range []enforce.Stop{
		{Scope: enforce.StopHost, Value: "example.com", By: "dora", Reason: "complaint 7"}, {Scope: enforce.StopAll},
	} {
		order.ID = string(order.Scope)
		if err := stops.Set(order); err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"host": 1} // the second order finds it stopped already, although it has not left
		if order.Scope == enforce.StopAll {
			want = map[string]int{}
		}
		if ended := f.stop(&stops); !maps.Equal(ended, want) {
			t.Errorf("%s ended %v, want %v", order, ended, want)
		}
	}
	stop := StoppedBy(ctx)
	if stop == nil {
		t.Fatal("the request was not stopped")
	}
	if want := "stopped while under way: host example.com, by dora, because: complaint 7"; stop.Error() != want {
		t.Errorf("got %q, want %q", stop, want)
	}
}

// TestInFlightLeave checks that no entry is stopped after it has left, in any order of leaving.
func TestInFlightLeave(t *testing.T) {
	t.Parallel()
	var f register
	o := site(t, "https://example.com")
	all := make([]*InFlight, 100)
	contexts := make([]context.Context, len(all))
	for i := range all {
		contexts[i], all[i], _ = f.enter(t.Context(), &InFlight{kind: requestEntry, origin: o, agent: "alpha"}, len(all))
	}
	for i := 0; i < len(all); i += 3 {
		all[i].Leave()
		all[i].Leave() // the second time does nothing
	}
	var stops enforce.Stops
	if err := stops.Set(enforce.Stop{Scope: enforce.StopAll}); err != nil {
		t.Fatal(err)
	}
	if n := sum(f.stop(&stops)); n != 66 {
		t.Errorf("%d requests were stopped, want 66", n)
	}
	for i, ctx := range contexts {
		if left := i%3 == 0; left != errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("request %d has the cause %v", i, context.Cause(ctx))
		}
		all[i].Leave()
	}
	if len(f.entries) > 0 || len(f.open) > 0 {
		t.Errorf("%d entries and the counts %v are left", len(f.entries), f.open)
	}
	var none *InFlight
	none.Leave()
}

// TestInFlightLimits checks that each agent has its own limit, and that tunnels do not count as
// requests.
func TestInFlightLimits(t *testing.T) {
	t.Parallel()
	var f register
	o := site(t, "https://example.com")
	var entered []*InFlight
	for i, step := range []struct {
		kind  entryKind
		agent string
		leave int // the entry of an earlier step, from 1
		limit int
		want  string
	}{
		{kind: requestEntry, agent: "a", limit: 0, want: "0 requests are under way"}, // zero denies
		{kind: requestEntry, agent: "a", limit: 2},
		{kind: requestEntry, agent: "a", limit: 2},
		{kind: requestEntry, agent: "a", limit: 2, want: "2 requests are under way"},
		{kind: tunnelEntry, agent: "a", limit: 1},
		{kind: tunnelEntry, agent: "a", limit: 1, want: "1 tunnels are open"},
		{kind: fetchEntry, limit: math.MaxInt},
		{kind: requestEntry, agent: "b", limit: 1},
		{kind: requestEntry, agent: "a", limit: 3}, // a reload raised it
		{kind: requestEntry, agent: "a", limit: 1, want: "1 requests are under way"},
		{leave: 2},
		{kind: requestEntry, agent: "a", limit: 3},
		{leave: 5},
		{kind: tunnelEntry, agent: "a", limit: 1},
	} {
		if step.leave > 0 {
			entered[step.leave-1].Leave()
			continue
		}
		got := ""
		_, e, err := f.enter(t.Context(), &InFlight{kind: step.kind, origin: o, agent: step.agent}, step.limit)
		if err != nil {
			got = err.Error()
		}
		if got != step.want || (e == nil) != (err != nil) {
			t.Errorf("step %d: error %q, want %q", i+1, got, step.want)
		}
		entered = append(entered, e)
	}
	want := map[entriesOf]int{{requestEntry, "a"}: 3, {requestEntry, "b"}: 1, {tunnelEntry, "a"}: 1, {fetchEntry, ""}: 1}
	if !maps.Equal(f.open, want) {
		t.Errorf("the counts are %v, want %v", f.open, want)
	}
}

// TestInFlightTunnelSeenInto checks that an order does not end a tunnel whose requests are
// registered themselves.
func TestInFlightTunnelSeenInto(t *testing.T) {
	o := site(t, "https://example.com")
	var stops enforce.Stops
	if err := stops.Set(enforce.Stop{Scope: enforce.StopHost, Value: "example.com"}); err != nil {
		t.Fatal(err)
	}
	for _, blind := range []bool{true, false} {
		ctx, e, err := new(Engine).EnterTunnel(t.Context(), o, "alpha", blind)
		if err != nil {
			t.Fatal(err)
		}
		underWay.stop(&stops)
		if stopped := StoppedBy(ctx) != nil; stopped != blind {
			t.Errorf("blind %t: stopped %t", blind, stopped)
		}
		e.Leave()
	}
}

// TestInFlightNothingSlips runs requests and orders at the same time. The order must find every
// request that passed before it.
func TestInFlightNothingSlips(t *testing.T) {
	t.Parallel()
	o := site(t, "https://example.com")
	for range 200 {
		var f register
		var stops enforce.Stops
		var group sync.WaitGroup
		begin, ended := make(chan struct{}), make(chan struct{})
		for range 8 {
			group.Go(func() {
				<-begin
				ctx, e, _ := f.enter(context.Background(), &InFlight{kind: requestEntry, origin: o, agent: "alpha"}, 8)
				defer e.Leave()
				if _, stopped := stops.Match(o, "alpha"); stopped {
					return
				}
				<-ended
				if StoppedBy(ctx) == nil {
					t.Error("a request passed before the order and was not stopped")
				}
			})
		}
		close(begin)
		if err := stops.Set(enforce.Stop{Scope: enforce.StopHost, Value: "example.com"}); err != nil {
			t.Fatal(err)
		}
		f.stop(&stops)
		close(ended)
		group.Wait()
	}
}

func TestStoppedBy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	if StoppedBy(ctx) != nil {
		t.Error("a live context was stopped")
	}
	cancel(errors.New("something else"))
	if StoppedBy(ctx) != nil {
		t.Error("StoppedBy accepts another cause")
	}
	if s := (&StoppedError{enforce.Stop{Scope: enforce.StopAll}}).Error(); !strings.HasSuffix(s, ": all") {
		t.Errorf("the error is %q", s)
	}
}

// BenchmarkInFlight measures the cost of the register for a request.
func BenchmarkInFlight(b *testing.B) {
	var f register
	o := site(b, "https://example.com")
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, e, _ := f.enter(ctx, &InFlight{kind: requestEntry, origin: o, agent: "alpha"}, 16384)
			e.Leave()
		}
	})
}

// BenchmarkInFlightStop measures an order with 10,000 requests under way and 1,000 orders in force.
func BenchmarkInFlightStop(b *testing.B) {
	var f register
	var stops enforce.Stops
	for i := range 1000 {
		if err := stops.Set(enforce.Stop{Scope: enforce.StopAgent, Value: strings.Repeat("x", 1+i%60) + string(rune('a'+i%26)) + strings.Repeat("y", i/60)}); err != nil {
			b.Fatal(err)
		}
	}
	o := site(b, "https://example.com")
	for range 10_000 {
		_, _, _ = f.enter(context.Background(), &InFlight{kind: requestEntry, origin: o, agent: "alpha"}, 10_000)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(f.stop(&stops)) != 0 {
			b.Fatal("a request was stopped")
		}
	}
}
