package preferences_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/crawlgate/crawlgate/preferences"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// The zero values say nothing.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	var s preferences.Set
	if !s.Empty() || s.Value(preferences.Search) != preferences.Unknown || s.Deciding("tdm") != (preferences.Statement{}) ||
		text(s) != "" || preferences.Dictionary(s, nil) != "" {
		t.Errorf("the zero Set: %+v", s)
	}
	if got := fmt.Sprint(preferences.Unknown, preferences.No, preferences.Yes, preferences.Value(9)); got != "unknown n y y" {
		t.Errorf("values: %s", got)
	}
	if !preferences.Robots(nil, nil, "/").Empty() || !preferences.Robots(nil, []robotstxt.Group{{}}, "/").Empty() {
		t.Error("no robots.txt says something")
	}
	if !(preferences.TDMRules{}).Set().Empty() || !preferences.Join().Empty() {
		t.Error("a zero value says something")
	}
}

// The names of the sources are a closed set.
func TestSources(t *testing.T) {
	t.Parallel()
	var names []string
	for s := range preferences.Source(20) {
		if s.String() != "" {
			names = append(names, s.String()+" "+s.From())
		}
	}
	const want = "robots_content_usage robots, robots_content_signal robots, robots_license robots, content_usage content-usage, " +
		"content_signal content-signal, link link, tdm_file tdmrep, tdm_field tdm-reservation, tdm_meta meta, " +
		"x_robots_tag x-robots-tag, meta meta"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("got %s", got)
	}
}

// A Set has at most 32 purposes of at most 64 bytes, and no n is dropped for a y.
func TestBounds(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	file.WriteString("User-agent: *\nAllow: /\n")
	for i := range 40 {
		fmt.Fprintf(&file, "Content-Usage: search=y, a%02d=n, b%d=n\nContent-Signal: search=yes, c%d=no\nLicense: https://a.example/%d\n", i, i, i, i)
	}
	fmt.Fprintf(&file, "Content-Signal: search=no, %s=no\n", strings.Repeat("x", 65))
	s := robots(file.String(), "/", "a")
	if n := len(s.Decided()); n != 32 {
		t.Errorf("%d purposes", n)
	}
	if n := len(s.Statements()); n > 32*8 {
		t.Errorf("%d statements", n)
	}
	if n := len(s.Licences()); n != 8 {
		t.Errorf("%d licences", n)
	}
	// Of 41 signals 32 are read, so the line that says no is dropped; within the bound it wins.
	few := robots("User-agent: *\nAllow: /\n"+strings.Repeat("Content-Signal: search=yes\n", 31)+"Content-Signal: search=no", "/", "a")
	if got := few.Deciding(preferences.Search); got.Value != preferences.No || got.Line != 34 {
		t.Errorf("got %+v", got)
	}
	h := http.Header{"Content-Usage": {"train-ai=n, x=\"" + strings.Repeat("y", 5000) + `"`}, "Content-Signal": {strings.Repeat("a=no,", 2000)}}
	if s := preferences.Fields(h, preferences.Marks{}); !s.Empty() {
		t.Errorf("long fields: %+v", s)
	}
	h = http.Header{"Content-Usage": {"train-ai=n, x=\"" + strings.Repeat("y", 500) + `"`}}
	if got := preferences.Fields(h, preferences.Marks{}).Deciding(preferences.TrainAI); len(got.Raw) != 256 {
		t.Errorf("got %+v", got)
	}
}

func TestDictionary(t *testing.T) {
	t.Parallel()
	s := preferences.Join(
		robots("User-agent: *\nAllow: /\n\nContent-Usage: train-ai=n, genai=y, odd=x", "/", "a"),
		preferences.Fields(http.Header{}, preferences.Marks{NoIndex: true}))
	directives := []preferences.Directive{
		{Name: "noindex"},
		{Name: "nofollow", Value: true},
		{Name: "unavailable_after", Value: time.Unix(1790000000, 999)},
		{Name: "max-snippet", Value: -1},
		{Name: "max-image-preview", Value: "large"},
		{Name: "text", Value: "a b"},
		{Name: "display", Value: "caf\u00e9"},
		{Name: "noindex", Value: false},       // it is there
		{Name: "float", Value: float32(1)},    // no type of a directive
		{Name: "\u00e9", Value: nil},          // no key
		{Name: "invalid", Value: "\xff"},      // no text
		{Name: "huge", Value: int64(1) << 60}, // beyond RFC 9651 section 3.3.1
		{Name: "long", Value: strings.Repeat("a", 2000)},
		{Name: "last", Value: int64(7)},
	}
	const want = "search=n;from=x-robots-tag, train-ai=n;from=robots;line=4, genai=y;from=robots;line=4, noindex, nofollow, " +
		`unavailable-after=@1790000000, max-snippet=-1, max-image-preview=large, text="a b", display=%"caf%c3%a9", last=7`
	got := preferences.Dictionary(s, directives)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := httpsfv.UnmarshalDictionary([]string{got}); err != nil {
		t.Error(err)
	}
	var many []preferences.Directive
	for i := range 1000 {
		many = append(many, preferences.Directive{Name: fmt.Sprintf("d%d", i)})
	}
	if got := preferences.Dictionary(s, many); len(got) > preferences.MaxDictionary || len(got) < 1000 {
		t.Errorf("%d bytes", len(got))
	}
}

// The form of a statement in logs is its member in the crawler's field.
func TestStatementIsItsMember(t *testing.T) {
	t.Parallel()
	s := robots("User-agent: *\nContent-Usage: train-ai=n\nAllow: /", "/", "a")
	if got, want := s.Deciding(preferences.TrainAI).String(), preferences.Dictionary(s, nil); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzJoin holds that it does not matter in which order Sets are joined, or how often; that any n
// wins; and the bounds.
func FuzzJoin(f *testing.F) {
	f.Add("Content-Usage: train-ai=n, search=y", "search=no, use=full", "1")
	f.Add("Content-Signal: /a ai-train=no,use=immediate\nLicense: https://a.example/", "a=yes", "0")
	f.Add("Content-Usage: a=n,b=n,c=n,d=n,e=n,f=n,g=n,h=n,i=n,j=n,k=n,l=n,m=n,n=n,o=n,p=n,q=n,r=n,s=n,t=n,u=n,v=n", "aa=no,bb=no,cc=no,dd=no,ee=no,ff=no,gg=no,hh=no,ii=no,jj=no", "")
	f.Fuzz(func(t *testing.T, lines, signal, reservation string) {
		a := robots("User-agent: *\n"+lines, "/a", "x")
		b := preferences.Fields(http.Header{"Content-Signal": {signal}, "Content-Usage": {lines}, "Tdm-Reservation": {reservation}}, preferences.Marks{})
		c := preferences.Page{Reservation: signal, Policy: reservation, Marks: preferences.Marks{NoAI: len(lines)%2 == 0}}.Of()
		sets := []preferences.Set{a, b, c}
		all := preferences.Join(a, b, c)
		for name, other := range map[string]preferences.Set{
			"commutative": preferences.Join(c, a, b),
			"associative": preferences.Join(a, preferences.Join(b, c)),
			"the other":   preferences.Join(preferences.Join(c, b), a),
			"idempotent":  preferences.Join(all, b, all),
		} {
			if !reflect.DeepEqual(all, other) {
				t.Errorf("%s: %+v and %+v", name, all, other)
			}
		}
		checkSet(t, all)
		for _, s := range sets {
			for _, d := range s.Decided() {
				after := all.Deciding(d.Purpose)
				superseded := d.From == preferences.TDMFile || d.From == preferences.TDMField // by TDMRep's own order
				if d.Value == preferences.No && after.Value != preferences.No && after.Purpose != "" && !superseded {
					t.Errorf("%s: the n is lost", d)
				}
			}
		}
	})
}

// checkSet holds the bounds and the crawler's field of any Set.
func checkSet(t *testing.T, s preferences.Set) {
	t.Helper()
	if n := len(s.Statements()); n > 34*8+2 {
		t.Errorf("%d statements", n)
	}
	for _, d := range s.Decided() {
		if len(d.Purpose) > 64 || len(d.Raw) > 256 || d.Value == preferences.Unknown || s.Deciding(d.Purpose) != d {
			t.Errorf("%+v", d)
		}
	}
	field := preferences.Dictionary(s, nil)
	d, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil || len(field) > preferences.MaxDictionary {
		t.Errorf("%d bytes: %v", len(field), err)
		return
	}
	for _, key := range d.Names() {
		if m, _ := d.Get(key); m.(httpsfv.Item).Value != httpsfv.Token(s.Value(key).String()) {
			t.Errorf("%s is not %s", key, s.Value(key))
		}
	}
}

// FuzzRobots reads any file; what it says of a target does not depend on its spelling, Lint is in
// order and bounded, and a file that is repeated says the same.
func FuzzRobots(f *testing.F) {
	f.Add([]byte(attachExample), "/ai-ok/x")
	f.Add([]byte(cloudflareManaged), "/")
	f.Add([]byte("content-usage:/%61 a=n\nuser-agent:*\ncontent-usage:/a b=n;c;d=\"e\"\ncontent-signal:/*a x=no,=,y\nlicense:http://h"), "/%61")
	f.Fuzz(func(t *testing.T, data []byte, target string) {
		if len(data) > 1<<14 {
			return
		}
		s := robots(string(data), target, "a", "b")
		checkSet(t, s)
		if other := robots(string(data), "#"+target, "a", "b"); target == "" && !reflect.DeepEqual(s, other) {
			t.Errorf("the root has two answers")
		}
		last := 0
		for _, w := range preferences.Lint(data) {
			if w.Line < last || w.Code == "" || w.Message == "" {
				t.Errorf("%+v behind line %d", w, last)
			}
			last = w.Line
		}
	})
}

// FuzzTDMFile reads any file and says of each target tdm and nothing else but train-ai.
func FuzzTDMFile(f *testing.F) {
	f.Add([]byte(tdmAll), "/x")
	f.Add([]byte(tdmGroups), "/directory-b/images/a.jpg")
	f.Fuzz(func(t *testing.T, data []byte, target string) {
		rules, err := preferences.ParseTDMFile(data)
		s := rules.Apply(target).Set()
		if err != nil && !s.Empty() {
			t.Errorf("%v, and %+v", err, s)
		}
		checkSet(t, s)
		for _, d := range s.Decided() {
			if d.Purpose != preferences.TDM && (d.Purpose != preferences.TrainAI || s.Value(preferences.TDM) != preferences.No) {
				t.Errorf("%+v", d)
			}
		}
	})
}

// FuzzFields reads any field lines.
func FuzzFields(f *testing.F) {
	f.Add("train-ai=n", "search=no", `<a>; rel="license"; type="application/rsl+xml", <b>;rel=license;type=application/rsl+xml`)
	f.Add("a;b=\"", ",=,use=", `<>;;=;"`)
	f.Fuzz(func(t *testing.T, usage, signal, link string) {
		s := preferences.Fields(http.Header{"Content-Usage": {usage, usage}, "Content-Signal": {signal}, "Link": {link, link}}, preferences.Marks{})
		checkSet(t, s)
		for _, l := range s.Licences() {
			if l.URL == "" || !strings.Contains(link, l.URL) || len(l.URL) > 2048 {
				t.Errorf("%+v", l)
			}
		}
	})
}
