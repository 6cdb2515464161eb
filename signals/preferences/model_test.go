package preferences_test

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// ranked are the purposes of the normal form in the order of a Set.
var ranked = []string{preferences.Search, preferences.AIInput, preferences.TrainAI, preferences.Archive, preferences.TDM}

// model follows the letter of the texts about what Sets say together.
type model struct {
	values map[string]preferences.Value
	tdm    [3]preferences.Value // of the file, the field and the meta element
}

// stronger returns the rule of draft-ietf-aipref-vocab-07 section 5.1 for two values.
func stronger(a, b preferences.Value) preferences.Value {
	for _, v := range []preferences.Value{preferences.No, preferences.Yes} {
		if a == v || b == v {
			return v
		}
	}
	return preferences.Unknown
}

func (m *model) say(purpose string, v preferences.Value) {
	m.values[purpose] = stronger(m.values[purpose], v)
}

// settled keeps the first 32 unknown labels, then adds what TDMRep says in its own order
// ("Processing priority").
func (m *model) settled() map[string]preferences.Value {
	rank := func(purpose string) int {
		if i := slices.Index(ranked, purpose); i >= 0 {
			return i
		}
		return len(ranked)
	}
	var names []string
	for name := range m.values {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	kept := model{values: make(map[string]preferences.Value)}
	known := len(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return rank(name) == len(ranked) }))
	for _, name := range names[:min(len(names), known+32)] {
		kept.values[name] = m.values[name]
	}
	for _, v := range []preferences.Value{m.tdm[2], m.tdm[1], m.tdm[0]} {
		if v == preferences.Unknown {
			continue
		}
		kept.say(preferences.TDM, v)
		if v == preferences.No {
			kept.say(preferences.TrainAI, v)
		}
		break
	}
	return kept.values
}

func fileOf(lines string) preferences.Set {
	rs := robotstxt.Parse([]byte("User-agent: *\nAllow: /\n" + lines))
	return preferences.Robots(rs, preferences.AppendGroups(nil, rs, robotstxt.Agent{Tokens: []string{"x"}}, nil), "/")
}

func fieldOf(name, value string) preferences.Set {
	return preferences.Fields(http.Header{name: {value}}, 0)
}

// sayTDM returns a Set of one of the three places of TDMRep.
func (m *model) sayTDM(place int, v preferences.Value) preferences.Set {
	m.tdm[place] = stronger(m.tdm[place], v)
	text := map[preferences.Value]string{preferences.Unknown: "2", preferences.No: "1", preferences.Yes: "0"}[v]
	switch place {
	case 0:
		rules, err := preferences.ParseTDMFile([]byte(`[{"location":"/","tdm-reservation":` + text + `}]`))
		if err != nil {
			panic(err)
		}
		return rules.Apply("/").Set()
	case 1:
		return fieldOf("Tdm-Reservation", text)
	}
	return preferences.Page(0, reserving(text), nil)
}

// sayMark returns a Set of a robots directive.
func (m *model) sayMark(kind byte) preferences.Set {
	said := [...]directives.Flags{directives.NoIndex, directives.NoArchive, directives.NoAI}[kind]
	m.say([]string{preferences.Search, preferences.Archive, preferences.TrainAI}[kind], preferences.No)
	if kind == 1 {
		return preferences.Page(said, nil, nil)
	}
	return preferences.Fields(http.Header{}, said)
}

// sayOne returns the Set of one statement. The byte determines its place, value and purpose.
func (m *model) sayOne(b byte) preferences.Set {
	place, value, which := b%6, preferences.Value(b/6%3), b/18%4
	purpose := []string{preferences.Search, preferences.TrainAI, "genai", "*x.y_z-1"}[which]
	switch place {
	case 4:
		return m.sayTDM(int(b/18%3), value)
	case 5:
		return m.sayMark(b / 18 % 3)
	}
	m.say(purpose, value)
	usage := purpose + "=" + []string{"N", "n", "y"}[value]
	signal := []string{"search", "AI-Train", "genai", "*x.y_z-1"}[which] + "=" + []string{"disallow", "No", "yes"}[value]
	switch place {
	case 0:
		return fileOf("Content-Usage: " + usage)
	case 1:
		return fileOf("Content-Signal: " + signal + "\nLicense: https://a.example/" + string('a'+rune(b%16)))
	case 2:
		return fieldOf("Content-Usage", usage)
	}
	return fieldOf("Content-Signal", signal+",use="+[]string{"immediate", "reference", "full"}[b%3])
}

// sayMany returns the Set of a field with many purposes.
func (m *model) sayMany(n int) preferences.Set {
	var members []string
	for i := range n {
		name, v := fmt.Sprintf("p%d", i), preferences.Value(1+i%2)
		m.say(name, v)
		members = append(members, name+"="+v.String())
	}
	return fieldOf("Content-Usage", strings.Join(members, ", "))
}

// FuzzSets compares Join with the model. The result must not depend on the order of the Sets, on
// how they are grouped, or on repetitions; the limits must be kept, and the crawler's field must
// say the same.
func FuzzSets(f *testing.F) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	f.Add([]byte{}, byte(0))
	f.Add(every, byte(0))
	f.Add(every, byte(255))
	f.Add([]byte{6, 12, 0}, byte(0))         // n, y and unknown of search in robots.txt
	f.Add([]byte{10, 34, 52}, byte(0))       // TDMRep: the file reserves, the field does not, the element says nothing
	f.Add([]byte{16, 28, 46, 32}, byte(40))  // the reverse, with a Content-Usage field
	f.Add([]byte("0123456789:;<="), byte(3)) // some of each place
	for b := range 256 {
		f.Add([]byte{byte(b), byte(b * 7), byte(b*31 + 5)}, byte(b))
	}
	f.Fuzz(func(t *testing.T, statements []byte, many byte) {
		statements = statements[:min(len(statements), 256)]
		m := model{values: make(map[string]preferences.Value)}
		sets := []preferences.Set{m.sayMany(int(many))}
		for _, b := range statements {
			sets = append(sets, m.sayOne(b))
		}
		all := preferences.Join(sets...)
		sameInAnyOrder(t, all, sets)
		withinBounds(t, all)
		want := m.settled()
		for purpose, v := range want {
			if got := all.Value(purpose); got != v {
				t.Errorf("%s: got %s, want %s", purpose, got, v)
			}
		}
		sameInField(t, all, want)
	})
}

func sameInAnyOrder(t *testing.T, all preferences.Set, sets []preferences.Set) {
	t.Helper()
	reversed, half := slices.Clone(sets), len(sets)/2
	slices.Reverse(reversed)
	one := preferences.Set{}
	for _, s := range sets {
		one = preferences.Join(s, one)
	}
	for name, other := range map[string]preferences.Set{
		"commutative":     preferences.Join(reversed...),
		"associative":     preferences.Join(preferences.Join(sets[:half]...), preferences.Join(sets[half:]...)),
		"one by one":      one,
		"idempotent":      preferences.Join(all, all),
		"every Set again": preferences.Join(append(slices.Clone(reversed), append(sets, all)...)...),
	} {
		if !reflect.DeepEqual(all, other) {
			t.Errorf("%s: %+v and %+v", name, all, other)
		}
	}
}

func withinBounds(t *testing.T, s preferences.Set) {
	t.Helper()
	count := make(map[string]int)
	for _, d := range s.Decided() {
		count[d.Purpose]++
		if len(d.Purpose) > 64 || len(d.Text) > 512 {
			t.Errorf("statement %+v is too long", d)
		}
	}
	for purpose, n := range count {
		if n > 1 && (purpose != preferences.License || n > 4) {
			t.Errorf("got %d statements of %s, want 1, or at most 4 of %s", n, purpose, preferences.License)
		}
	}
	if len(count) > len(ranked)+2+32 {
		t.Errorf("got %d purposes, want at most %d", len(count), len(ranked)+2+32)
	}
}

// sameInField checks that the crawler's field has each known purpose, in the order of the Set, up
// to 1 KiB.
func sameInField(t *testing.T, s preferences.Set, want map[string]preferences.Value) {
	t.Helper()
	field, cut := preferences.Dictionary(s, nil)
	d, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil || len(field) > 1<<10 {
		t.Fatalf("the field has %d bytes: %v", len(field), err)
	}
	known := 0
	for _, v := range want {
		if v != preferences.Unknown {
			known++
		}
	}
	said := slices.DeleteFunc(d.Names(), func(key string) bool { return key == preferences.Use || key == preferences.License })
	if n := len(said); n > known || n < known && (len(field) < 900 || !cut) {
		t.Errorf("%d of %d purposes are in the field %s", n, known, field)
	}
	for _, key := range said {
		m, _ := d.Get(key)
		item, ok := m.(httpsfv.Item)
		if !ok || item.Value != httpsfv.Token(want[key].String()) {
			t.Errorf("%s: got %v, want %s", key, item.Value, want[key])
		}
	}
}

// The rule for several statements (draft-ietf-aipref-vocab-07 section 5.1), whatever their source
// and order: any n, else any y, else unknown.
func TestSeveralStatements(t *testing.T) {
	t.Parallel()
	const n, y, unknown = preferences.No, preferences.Yes, preferences.Unknown
	values := []preferences.Value{unknown, n, y}
	for _, c := range []struct {
		statements [3]preferences.Value
		want       preferences.Value
	}{
		{[3]preferences.Value{n, n, n}, n},
		{[3]preferences.Value{n, n, y}, n},
		{[3]preferences.Value{n, n, unknown}, n},
		{[3]preferences.Value{n, y, y}, n},
		{[3]preferences.Value{n, y, unknown}, n},
		{[3]preferences.Value{n, unknown, unknown}, n},
		{[3]preferences.Value{y, y, y}, y},
		{[3]preferences.Value{y, y, unknown}, y},
		{[3]preferences.Value{y, unknown, unknown}, y},
		{[3]preferences.Value{unknown, unknown, unknown}, unknown},
	} {
		for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			of := func(place int, words ...string) string {
				return words[slices.Index(values, c.statements[order[place]])]
			}
			got := preferences.Join(
				fileOf("Content-Usage: train-ai="+of(0, "maybe", "n", "y")),
				fileOf("Content-Signal: ai-train="+of(1, "disallow", "no", "yes")),
				fieldOf("Content-Usage", "train-ai="+of(2, `"n"`, "n", "y")),
			).Value(preferences.TrainAI)
			if got != c.want {
				t.Errorf("%v in the order %v: got %s, want %s", c.statements, order, got, c.want)
			}
		}
	}
}
