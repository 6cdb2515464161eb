package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testcpu"
)

// stopsIn returns the stops loaded from a folder.
func stopsIn(tb testing.TB, folder string) *stopState {
	tb.Helper()
	s := new(stopState)
	if err := s.load(folder); err != nil {
		tb.Fatal(err)
	}
	return s
}

// denyHosts orders stops of hosts.
func denyHosts(tb testing.TB, s *stopState, hosts ...string) {
	tb.Helper()
	for _, host := range hosts {
		order := enforce.Stop{ID: host[:1] + "-id", Scope: enforce.StopHost, Value: host, At: time.Now().UTC()}
		if _, err := (&Engine{stops: s}).Deny(order); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestStopsFileGrows checks that each change adds a line, until the added lines are longer than the
// first one.
func TestStopsFileGrows(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "stops.json")
	s := stopsIn(t, folder)
	longest := 0
	for i := range 300 {
		order := enforce.Stop{ID: fmt.Sprint("o-", i), Scope: enforce.StopHost, Value: fmt.Sprintf("h%d.example", i%200), At: time.Now()}
		if _, err := (&Engine{stops: s}).Deny(order); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, more, _ := bytes.Cut(data, []byte("\n"))
		longest = max(longest, bytes.Count(data, []byte("\n")))
		if len(more) > len(first)+1 {
			t.Fatalf("after %d orders: %d bytes were added to %d", i+1, len(more), len(first))
		}
		if got := ids(stopsIn(t, folder)); i%10 == 0 && !slices.Equal(got, ids(s)) {
			t.Fatalf("after %d orders a restart has %q, want %q", i+1, got, ids(s))
		}
	}
	if longest < 20 {
		t.Errorf("the file had at most %d lines, want at least 20", longest)
	}
	again := stopsIn(t, folder)
	if got := again.held.All(); len(got.Held) != 200 || len(got.Lifted) != 100 {
		t.Errorf("%d stops in force and %d lifted, want 200 and 100", len(got.Held), len(got.Lifted))
	}
	if err := s.Destruct(); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); bytes.Count(data, []byte("\n")) != 1 {
		t.Errorf("a gateway that ends leaves more than one line: %.200s", data)
	}
}

// TestStopsFileGoesOn checks that the first order after a start adds a line to a complete file.
func TestStopsFileGoesOn(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	denyHosts(t, stopsIn(t, folder), "a.example", "b.example", "c.example")
	denyHosts(t, stopsIn(t, folder), "d.example")
	s := stopsIn(t, folder)
	if err := s.Destruct(); err != nil {
		t.Fatal(err)
	}
	denyHosts(t, stopsIn(t, folder), "e.example")
	data, err := os.ReadFile(filepath.Join(folder, "stops.json"))
	if err != nil || bytes.Count(data, []byte("\n")) != 2 {
		t.Errorf("the file is %s, error %v, want two lines", data, err)
	}
	if got := ids(stopsIn(t, folder)); len(got) != 5 {
		t.Errorf("a restart has %q, want 5 stops", got)
	}
}

// TestLiftOnAFullDisk checks that if a lift cannot be saved, a stop stays in force and an exception
// ends. A folder in the place of the file simulates the disk.
func TestLiftOnAFullDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	e := &Engine{stops: stopsIn(t, folder)}
	denyHosts(t, e.stops, "a.example")
	allowed := enforce.Stop{
		ID: "x-id", Scope: enforce.StopAllow, Value: "acme@b.example", By: "dora", Ticket: "OPS-7", At: time.Now().UTC(), Until: time.Now().Add(time.Hour),
	}
	if _, err := e.Deny(allowed); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "stops.json")
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, order := range []enforce.Stop{allowed, {Scope: enforce.StopHost, Value: "a.example"}} {
		if _, found, err := e.Lift(order, enforce.Lift{By: "dora", At: time.Now()}); !found || err == nil {
			t.Errorf("Lift of %v: found %v, error %v, want an error", order, found, err)
		}
	}
	if got := ids(e.stops); !slices.Equal(got, []string{"a-id"}) {
		t.Errorf("in force are %q, want only a-id", got)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	denyHosts(t, e.stops, "c.example")
	if got := ids(stopsIn(t, folder)); !slices.Equal(got, []string{"a-id", "c-id"}) {
		t.Errorf("after a restart, %q are in force, want a-id and c-id", got)
	}
}

// TestStopsFileCutOff checks a crash at each byte. In an added line it loses only that line. In the
// first line, which is written at once, the file is rejected, as is damage before the last line.
func TestStopsFileCutOff(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "stops.json")
	s := stopsIn(t, folder)
	denyHosts(t, s, "a.example", "b.example", "c.example", "d.example")
	s.whole = 0
	denyHosts(t, s, "e.example", "f.example", "g.example")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines) != 4 {
		t.Fatalf("the file does not have 4 lines: %s", data)
	}
	all := []string{"a-id", "b-id", "c-id", "d-id", "e-id", "f-id", "g-id"}
	last, first := len(data)-len(lines[2]), len(lines[0])
	for n := range len(data) + 1 {
		for _, tail := range []string{"", "\x00\x00\x00"} {
			if err := os.WriteFile(path, append(slices.Clone(data[:n]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			again := new(stopState)
			err := again.load(folder)
			if n < first-1 {
				if n > 0 && err == nil {
					t.Fatalf("load accepted %d bytes of the first line", n)
				}
				continue
			}
			want := all[:5]
			if n >= first+len(lines[1])-1 {
				want = all[:6]
			}
			if n >= len(data)-1 {
				want = all
			}
			if err != nil || !slices.Equal(ids(again), want) {
				t.Fatalf("%d of %d bytes (the last line begins at %d): %q, want %q; error %v", n, len(data), last, ids(again), want, err)
			}
			if n%25 > 0 && n < len(data)-1 {
				continue
			}
			denyHosts(t, again, "h.example")
			if got, want := ids(stopsIn(t, folder)), append(slices.Clone(want), "h-id"); !slices.Equal(got, want) {
				t.Fatalf("%d of %d bytes, and one more order: %q, want %q", n, len(data), got, want)
			}
		}
	}
	for i := range lines[:2] {
		damaged := slices.Clone(lines)
		damaged[i] = append([]byte("{"), lines[i]...)
		if err := os.WriteFile(path, bytes.Join(damaged, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := new(stopState).load(folder); err == nil {
			t.Errorf("load accepted damage in line %d", i+1)
		}
	}
}

// TestStopsFileChanged checks that a file that was removed, restored or cut is written as a whole.
func TestStopsFileChanged(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "stops.json")
	s := stopsIn(t, folder)
	denyHosts(t, s, "a.example", "b.example", "c.example", "d.example", "e.example")
	for i, change := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("{}"), 0o600) },
		func() error { return os.Truncate(path, s.size-3) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		denyHosts(t, s, string(rune('f'+i))+".example")
		if got := ids(stopsIn(t, folder)); !slices.Equal(got, ids(s)) {
			t.Errorf("change %d: a restart has %q, want %q", i, got, ids(s))
		}
	}
}

// BenchmarkMergedOrder measures an order of another gateway beside 10,000 others, in memory and on
// the disk.
func BenchmarkMergedOrder(b *testing.B) {
	s := stopsIn(b, b.TempDir())
	var many enforce.StopSet
	for i := range 9_999 {
		id := fmt.Sprintf("QX4GK6YVKQ7J5WZNHOBC3M%d", i)
		many.Held = append(many.Held, enforce.Stop{ID: id, Scope: enforce.StopHost, Value: id + ".example", By: "dora", Reason: "complaint 4711", At: time.Now()})
	}
	if _, err := s.merge(many); err != nil {
		b.Fatal(err)
	}
	began := testcpu.Used(b)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("new-%d", i)
		other := enforce.StopSet{Held: []enforce.Stop{{ID: id, Scope: enforce.StopHost, Value: id + ".example", At: time.Now().Truncate(time.Second)}}} // like the admin API
		if _, err := s.merge(other); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(testcpu.Used(b)-began)/float64(b.N)/1e6, "ms-cpu/op")
}
