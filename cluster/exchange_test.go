package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/enforce"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// model is a Redis as write.lua leaves it.
type model struct {
	orders, lifted map[string]string
	version        string
	writes         int
	changes        []rueidis.XRangeEntry
}

func newModel() *model {
	return &model{orders: map[string]string{}, lifted: map[string]string{}}
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.orders), maps.Clone(m.lifted), m.version, m.writes, slices.Clone(m.changes)}
}

func (m *model) ids() ids {
	all := ids{map[string]bool{}, map[string]bool{}}
	for id := range m.orders {
		all.orders[id] = true
	}
	for id := range m.lifted {
		all.lifted[id] = true
	}
	return all
}

func (m *model) apply(w write) {
	for id, lift := range w.Lifted {
		m.lifted[id] = lift
		delete(m.orders, id)
	}
	for id, order := range w.Orders {
		if _, lifted := m.lifted[id]; !lifted {
			m.orders[id] = order
		}
	}
	for _, id := range w.Forgotten {
		delete(m.lifted, id)
	}
	m.writes++
	from := m.version
	m.version = fmt.Sprint(m.writes, " ", rand.Uint64())
	m.changes = append(m.changes, rueidis.XRangeEntry{
		ID: fmt.Sprintf("%d-0", m.writes), FieldValues: map[string]string{"from": from, "to": m.version, "write": text(w)},
	})
}

// since is XRANGE of at most n changes after a version.
func (m *model) since(version string, n int) (changes []rueidis.XRangeEntry) {
	for _, c := range m.changes {
		if number(strings.TrimSuffix(c.ID, "-0")) > number(version) && len(changes) < n {
			changes = append(changes, c)
		}
	}
	return changes
}

// node is a gateway of the model.
type node struct {
	orders, shared enforce.StopSet
	seen           string
	joined         bool
}

// look runs Fleet.exchange once against the model, reading at most n changes.
func (n *node) look(tb testing.TB, m *model, now time.Time, most int) (done bool) {
	tb.Helper()
	var read enforce.StopSet
	version := m.version
	if n.joined && version != n.seen {
		var bad error
		if read, version, bad = changesSince(n.seen, m.since(n.seen, most)); bad != nil {
			tb.Fatal(bad)
		}
	}
	if !n.joined || version == "" {
		return n.round(tb, m, now)
	}
	var err error
	if n.orders, err = n.orders.Merge(read.Since(n.orders), now); err != nil {
		tb.Fatal(err)
	}
	w := unsent(n.orders.Since(n.shared), read, now)
	if w.size() > 0 {
		m.apply(w)
	}
	n.seen, n.shared = version, n.orders
	return w.size() == 0 && n.seen == m.version
}

// round runs Fleet.round against the model.
func (n *node) round(tb testing.TB, m *model, now time.Time) (done bool) {
	tb.Helper()
	redis := m.ids()
	orderIDs, liftIDs := unknown(n.orders, redis)
	orders, lifts := map[string]string{}, map[string]string{}
	for _, id := range orderIDs {
		orders[id] = m.orders[id]
	}
	for _, id := range liftIDs {
		lifts[id] = m.lifted[id]
	}
	read, err := readOrders(orders, lifts)
	if err != nil {
		tb.Fatal(err)
	}
	if n.orders, err = n.orders.Merge(read, now); err != nil {
		tb.Fatal(err)
	}
	w := missing(n.orders, redis, read, now)
	if w.size() == 0 {
		n.seen, n.shared, n.joined = m.version, n.orders, true
		return true
	}
	m.apply(w)
	return false
}

// FuzzFleet makes gateways give and lift orders, exchange them through a Redis that is emptied and
// set back, and restart from their files, in any order. In the end all gateways must hold the same
// orders: those that were given and not lifted by a gateway that knew them.
func FuzzFleet(f *testing.F) {
	f.Add([]byte{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110})
	f.Add([]byte("stop, lift, meet; stop, lose everything, lift, and meet again"))
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		script := make([]byte, 200)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		const hosts = 4
		nodes := make([]*node, 3)
		for i := range nodes {
			nodes[i] = new(node)
		}
		redis, saved := newModel(), newModel()
		given, lifted := map[string]bool{}, map[string]bool{} // by the operators
		for i, op := range script[:min(len(script), 400)] {
			n, host := nodes[int(op)%len(nodes)], fmt.Sprintf("h%d.example", int(op/16)%hosts)
			now := noon.Add(time.Duration(i) * time.Second)
			lift := func(after enforce.StopSet) {
				for id := range after.Lifted {
					lifted[id] = true
				}
				n.orders = after
			}
			switch (op / 3) % 8 {
			case 0, 1:
				order := enforce.Stop{ID: fmt.Sprintf("o-%d", i), Scope: enforce.StopHost, Value: host, At: now}
				if op%5 == 0 {
					order.Scope, order.Value, order.By, order.Ticket, order.Until = enforce.StopAllow, "Acme@"+host, "ada", "OPS-7", now.Add(time.Hour)
				}
				after, err := n.orders.Add(order)
				if err != nil {
					t.Fatal(err)
				}
				given[order.ID] = true
				lift(after)
			case 2:
				order := enforce.Stop{Scope: enforce.StopHost, Value: host}
				if op%2 == 0 {
					order.Scope, order.Value = enforce.StopAllow, "Acme@"+host
				}
				after, _, _ := n.orders.Lift(order, enforce.Lift{At: now})
				lift(after)
			case 3:
				n.round(t, redis, now)
				if op%2 == 0 && len(redis.changes) > 0 { // an older release without changes, or a trimmed stream
					redis.changes = redis.changes[:len(redis.changes)-1]
				}
			case 4:
				n.look(t, redis, now, 2)
			case 5:
				switch op % 4 {
				case 0:
					redis = newModel() // FLUSHALL
				case 1:
					saved = redis.clone()
				default:
					redis = saved.clone() // a failover to an outdated copy
				}
			case 6:
				data, err := json.Marshal(n.orders)
				if err != nil {
					t.Fatal(err)
				}
				*n = node{}
				if err := n.orders.UnmarshalJSON(data); err != nil {
					t.Fatal(err)
				}
			default:
				if redis.version != n.seen {
					n.look(t, redis, now, 100)
				}
			}
		}
		end := noon.Add(time.Hour)
		for range 4 {
			for _, n := range nodes {
				rounds := 0
				for !n.look(t, redis, end, 3) {
					if rounds++; rounds > 200 {
						t.Fatalf("the gateways still exchange orders after 200 rounds: %v, redis %v", n.orders, redis)
					}
				}
			}
		}
		maps.DeleteFunc(given, func(id string, _ bool) bool { return lifted[id] })
		for i, n := range nodes {
			if held := heldIDs(n.orders); !maps.Equal(held, given) {
				t.Fatalf("gateway %d holds %v, want %v", i, slices.Sorted(maps.Keys(held)), slices.Sorted(maps.Keys(given)))
			}
			if p := unsent(n.orders.Since(n.shared), enforce.StopSet{}, end).size(); p != 0 {
				t.Fatalf("gateway %d: %d changes are not sent, want 0", i, p)
			}
		}
		if got := slices.Sorted(maps.Keys(redis.orders)); !slices.Equal(got, slices.Sorted(maps.Keys(given))) {
			t.Fatalf("redis has the orders %v", got)
		}
	})
}

func order(id string, at time.Time) enforce.Stop {
	return enforce.Stop{ID: id, Scope: enforce.StopHost, Value: "example.com", At: at}
}

// TestLiftsAreForgotten checks that a lift is removed from the gateways after 90 days and from
// Redis a day later, so that gateways whose clocks differ by hours do not restore and remove it in
// turns.
func TestLiftsAreForgotten(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	redis := newModel()
	var a, b node
	var err error
	if a.orders, err = a.orders.Add(order("one", noon)); err != nil {
		t.Fatal(err)
	}
	a.orders, _, _ = a.orders.Lift(enforce.Stop{Scope: enforce.StopHost, Value: "example.com"}, enforce.Lift{By: "dora", At: noon})
	for _, tt := range []struct {
		a, b            time.Duration // age of the lift by their clocks
		inA, inB, redis int
	}{
		{0, 0, 1, 1, 1},
		{89 * day, 91 * day, 1, 0, 0}, // b removes it and a restores it: see below
		{90 * day, 89 * day, 0, 0, 0},
		{91 * day, 91 * day, 0, 0, 0},
	} {
		for range 3 {
			a.round(t, redis, noon.Add(tt.a))
			b.round(t, redis, noon.Add(min(tt.b, tt.a+12*time.Hour)))
		}
		if tt.a == 0 && (len(a.orders.Lifted) != tt.inA || len(b.orders.Lifted) != tt.inB || len(redis.lifted) != tt.redis) {
			t.Errorf("at %v: a has %v, b has %v, redis has %v", tt.a, a.orders, b.orders, redis)
		}
		before := redis.writes
		a.round(t, redis, noon.Add(tt.a))
		b.round(t, redis, noon.Add(tt.a+12*time.Hour))
		if redis.writes != before {
			t.Errorf("at %v the gateways still write to redis: %v", tt.a, redis)
		}
	}
	if len(a.orders.Lifted)+len(b.orders.Lifted)+len(redis.lifted)+len(redis.orders) > 0 {
		t.Errorf("not all is removed: a has %v, b has %v, redis has %v", a.orders, b.orders, redis)
	}
}

// TestEndedExceptionsAreForgotten checks that an exception that ended is removed from the gateways
// and Redis with the next exchange of another order, a day or a year later, and that its lift is
// removed like any other. Clocks that differ by hours must not restore it.
func TestEndedExceptionsAreForgotten(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, after := range []time.Duration{day, 2 * day, 89 * day, 92 * day, 400 * day} {
		redis := newModel()
		var a, b node
		var err error
		allow := enforce.Stop{ID: "x", Scope: enforce.StopAllow, Value: "Acme@a.test", By: "ada", Ticket: "OPS-7", At: noon, Until: noon.Add(time.Hour)}
		if a.orders, err = a.orders.Add(allow); err != nil {
			t.Fatal(err)
		}
		exchange := func(now time.Time) {
			for range 3 {
				a.round(t, redis, now)
				b.round(t, redis, now.Add(-6*time.Hour))
			}
		}
		exchange(noon)
		later := allow.Until.Add(after)
		if a.orders, err = a.orders.Add(order("more", later)); err != nil {
			t.Fatal(err)
		}
		exchange(later)
		exchange(later.Add(6 * time.Hour))
		if len(a.orders.Held) != 1 || len(b.orders.Held) != 1 || len(redis.orders) != 1 || len(a.orders.Lifted) != 1 || len(b.orders.Lifted) != 1 {
			t.Errorf("after %v: a has %v, b has %v, redis has %v, want one order and one lift", after, a.orders, b.orders, redis)
		}
		exchange(later.Add(130 * day))
		if before := redis.writes; len(redis.lifted)+len(redis.orders) > 1 {
			t.Errorf("later than %v, after %d writes, redis still has %v", after, before, redis)
		}
	}
}

// TestReadOrders checks that a malformed order or lift is left out and reported, and that the
// others are read.
func TestReadOrders(t *testing.T) {
	t.Parallel()
	good := text(order("a", noon))
	for _, tt := range []struct{ id, value string }{
		{"b", "{"},
		{"b", good},
		{"b", `{"id":"b","scope":"nothing"}`},
		{"b", `{"id":"b","scope":"host","value":"a..b"}`},
		{"b c", `{"id":"b c","scope":"all"}`},
		{"b", `[]`},
		{"b", `{"id":"b","scope":"allow","value":"Acme@a.test","by":"ada","at":"2026-11-23T12:00:00Z","until":"2026-11-24T12:00:00Z"}`}, // no ticket
		{"", `{"scope":"all"}`},
	} {
		read, err := readOrders(map[string]string{"a": good, tt.id: tt.value}, nil)
		if err == nil || len(read.Held) != 1 || read.Held[0].ID != "a" {
			t.Errorf("readOrders with %q %q = %v, %v, want only order a and an error", tt.id, tt.value, read, err)
		}
	}
	read, err := readOrders(map[string]string{"gone": ""}, map[string]string{"gone": "", "l": `{"by":"x","at":"2026-11-23T12:00:00Z"}`})
	if err != nil || len(read.Held) != 0 || len(read.Lifted) != 1 || !read.Lifted["l"].At.Equal(noon) {
		t.Errorf("readOrders = %v, %v, want only the lift l", read, err)
	}
	for _, lift := range []string{"{", `{"at":1}`} {
		if read, err := readOrders(nil, map[string]string{"l": lift}); err == nil || len(read.Lifted) > 0 {
			t.Errorf("readOrders with the lift %q = %v, want an error", lift, read)
		}
	}
}

// FuzzReadOrders checks that orders that were read from Redis, whatever it contains, can be merged
// and stored.
func FuzzReadOrders(f *testing.F) {
	f.Add("a", text(order("a", noon)), `{"at":"2026-11-23T12:00:00Z"}`)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, id, value, lift string) {
		read, _ := readOrders(map[string]string{id: value}, map[string]string{id: lift})
		merged, err := (enforce.StopSet{}).Merge(read, noon)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(merged)
		if err != nil {
			t.Fatal(err)
		}
		var kept enforce.StopSet
		if err := json.Unmarshal(data, &kept); err != nil || len(kept.Held) != len(merged.Held) {
			t.Fatalf("reading the stored orders %s: %v", data, err)
		}
	})
}

// TestActionsAreNotLostUnnoticed checks when a gateway continues in the stream, and when it starts
// again.
func TestActionsAreNotLostUnnoticed(t *testing.T) {
	t.Parallel()
	stream := func(ids ...string) (list []rueidis.XRangeEntry) {
		for _, id := range ids {
			list = append(list, rueidis.XRangeEntry{ID: id})
		}
		return list
	}
	for _, tt := range []struct {
		name, last string
		read       []rueidis.XRangeEntry
		next       int
		lost       bool
	}{
		{"a new stream", "", stream("1-0", "2-0"), 2, false},
		{"nothing new", "2-0", stream("2-0"), 0, false},
		{"two more", "2-0", stream("2-0", "3-0", "3-1"), 2, false},
		{"trimmed", "2-0", stream("3-0"), 0, true},
		{"emptied", "2-0", nil, 0, true},
	} {
		if next, lost := upToDate(tt.last, tt.read); len(next) != tt.next || lost != tt.lost {
			t.Errorf("%s: upToDate = %v, %v", tt.name, next, lost)
		}
	}
	entry := func(id, value string) rueidis.XRangeEntry {
		return rueidis.XRangeEntry{ID: id, FieldValues: map[string]string{"action": value}}
	}
	good := text(Action{ID: "x", Kind: Purge, Value: "https://example.com"})
	for now, late := range map[int64]bool{60_000: false, 61_000: false, 61_001: true} {
		if a, err := readAction(entry("1000-7", good), now); err != nil || a.Late != late || a.Kind != Purge {
			t.Errorf("at %d: readAction = %+v, %v", now, a, err)
		}
	}
	for _, bad := range []rueidis.XRangeEntry{{ID: "1-0"}, entry("x-0", good), entry("1-0", "{"), entry("1-0", `"`+strings.Repeat("x", maxValue)+`"`)} {
		if _, err := readAction(bad, 0); err == nil {
			t.Errorf("readAction accepts %.50v", bad)
		}
	}
}

// TestMembership checks that a gateway that was killed and restarted counts once, and that two
// gateways with one name count twice and are reported.
func TestMembership(t *testing.T) {
	t.Parallel()
	const hour = 3600_000
	p := func(name string, since, last int64) process {
		return process{note{Self: Self{Name: name}, Since: since}, last}
	}
	left := p("d", 1, 9000)
	left.Left = true
	for _, tt := range []struct {
		name string
		in   membership
		now  int64
		want string
	}{
		{"two", membership{"1": p("a", 1, 9000), "2": p("b", 1, 9000)}, 9000, "a b"},
		{"one that left", membership{"1": p("a", 1, 9000), "4": left}, 9000, "a"},
		{"killed and started again", membership{"1": p("a", 1, 5000), "2": p("a", 6000, 9000)}, 9000, "a"},
		{"its note is younger than its heartbeat", membership{"1": p("a", 9001, 9000)}, 9001, "a"},
		{"one name twice", membership{"1": p("a", 1, 9000), "2": p("a", 6000, 9000)}, 9000, "a! a!"},
		{"silent for an hour but one", membership{"1": p("a", 1, 2), "2": p("b", 1, hour)}, hour, "a b"},
		{"silent for an hour", membership{"1": p("a", 1, 1), "2": p("b", 1, hour)}, hour + 1, "b"},
	} {
		var got []string
		for _, g := range (membership{}).with(tt.in, tt.now).list(0) {
			name := g.Name
			if g.NameTwice {
				name += "!"
			}
			got = append(got, name)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, s, tt.want)
		}
	}
	known := membership{"1": p("a", 1, 9000), "2": p("b", 1, 9000)}
	if after := known.with(membership{"1": p("a", 1, 9500)}, 9500); len(after) != 2 || after["1"].last != 9500 || known["1"].last != 9000 {
		t.Errorf("after redis lost b: %v; before: %v", after, known)
	}
}

// TestApplied checks which gateways a command waits for.
func TestApplied(t *testing.T) {
	t.Parallel()
	at := func(last int64, ids ...string) process {
		p := process{note{Self: Self{Name: fmt.Sprint("at", last)}, Done: map[string]ack{}}, last}
		for _, id := range ids {
			p.Done[id] = ack{7, noon}
		}
		return p
	}
	for _, tt := range []struct {
		name  string
		in    membership
		fresh bool
		done  int
		wait  bool
	}{
		{"all", membership{"1": at(10_000, "x"), "2": at(9_000, "x")}, false, 2, false},
		{"one is busy", membership{"1": at(10_000, "x"), "2": at(9_000, "y")}, false, 1, true},
		{"one is dead", membership{"1": at(10_000, "x"), "2": at(5_000)}, false, 1, false},
		{"one may come back with redis", membership{"1": at(10_000, "x"), "2": at(5_000)}, true, 1, true},
	} {
		list, missing := tt.in.applied("x", 10_000, 0, tt.fresh)
		wait := len(missing) > 0
		r := Acknowledgements{Gateways: list, Expected: 1}
		answered, all, ended := r.Counts()
		if wait != tt.wait || answered != tt.done || all != len(tt.in) || ended != 7*tt.done {
			t.Errorf("%s: gateways %+v, wait = %v", tt.name, list, wait)
		}
	}
	if _, all, _ := (Acknowledgements{Expected: 3}).Counts(); all != 3 {
		t.Errorf("Counts returns %d gateways, want the 3 that are expected", all)
	}
	if answered, all, _ := (Acknowledgements{Gateways: []Applied{{AppliedAt: noon}}, Unlisted: 4, Expected: 3}).Counts(); answered != 1 || all != 5 {
		t.Errorf("Counts returns %d of %d, want 1 of 5", answered, all)
	}
}
