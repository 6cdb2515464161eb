package preferences_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Zero values are empty.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	var s preferences.Set
	if !s.Empty() || s.Value(preferences.Search) != preferences.Unknown || s.Deciding("tdm") != (preferences.Statement{}) ||
		text(s) != "" || field(s) != "" {
		t.Errorf("the zero Set is not empty: %+v", s)
	}
	if got := fmt.Sprint(preferences.Unknown, preferences.No, preferences.Yes, preferences.Value(9)); got != "unknown n y y" {
		t.Errorf("values = %s, want unknown n y y", got)
	}
	if !preferences.Robots(nil, nil, "/").Empty() || !preferences.Robots(nil, []robotstxt.Group{{}}, "/").Empty() {
		t.Error("Robots without a robots.txt is not empty")
	}
	if !(preferences.TDMRules{}).Set().Empty() || !preferences.Join().Empty() {
		t.Error("a zero value is not empty")
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

// field returns the crawler's field of a single Set.
func field(s preferences.Set) string {
	text, _ := preferences.Dictionary(s, nil)
	return text
}

// A Set has at most 32 labels that are in no vocabulary, of at most 64 bytes, and 4 licences. Such
// a label never displaces a known one, no n is dropped for a y, and dropping is reported.
func TestBounds(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	file.WriteString("User-agent: *\nAllow: /\n")
	for i := range 30 {
		fmt.Fprintf(&file, "Content-Usage: a%02d=n, b%d=n\nContent-Signal: c%d=no\nLicense: https://a.example/%d\n", i, i, i, i)
	}
	file.WriteString("Content-Usage: search=y\nContent-Signal: use=full\nContent-Signal: search=no\n")
	s := robots(file.String(), "/", "a")
	if n := len(s.Decided()); n != 32+4+1+1 || !s.Cut() {
		t.Errorf("got %d statements, cut %t, want 38 and true", n, s.Cut())
	}
	if got := s.Deciding(preferences.Search); got.Value != preferences.No || s.Deciding(preferences.Use).Text != "full" {
		t.Errorf("got %+v", got)
	}
	// Of 33 signals 32 are read, so the last line, with n, is dropped; within the limit it wins.
	for n, want := range map[int]preferences.Value{31: preferences.No, 32: preferences.Yes} {
		s := robots("User-agent: *\nAllow: /\n"+strings.Repeat("Content-Signal: search=yes\n", n)+"Content-Signal: search=no", "/", "a")
		if s.Value(preferences.Search) != want || s.Cut() != (n == 32) {
			t.Errorf("after %d lines: value %s, cut %t", n, s.Value(preferences.Search), s.Cut())
		}
	}
	long := strings.Repeat("x", 65)
	for name, s := range map[string]preferences.Set{
		"a long usage":           fieldOf("Content-Usage", "train-ai=n, x=\""+strings.Repeat("y", 5000)+`"`),
		"a long signal":          fieldOf("Content-Signal", strings.Repeat("a=no,", 2000)),
		"a long Link":            fieldOf("Link", linkTo("a")+strings.Repeat(" ", 5000)),
		"a long licence":         fieldOf("Link", linkTo(strings.Repeat("a", 513))),
		"a long label":           fieldOf("Content-Usage", long+"=n"),
		"a long label of signal": fieldOf("Content-Signal", long+"=no"),
		"33 lines":               fieldsOf(repeated("Content-Usage", "search=n", 33, "search=n")),
		"33 lines of TDMRep":     fieldsOf(repeated("Tdm-Reservation", "", 33, "1")),
		"33 lines of usage":      fileOf(strings.Repeat("Content-Usage: /x search=n\n", 33)),
		"33 licences":            fileOf(strings.Repeat("License: https://a.example/\n", 33)),
	} {
		if joined := preferences.Join(preferences.Set{}, s, preferences.Set{}); !s.Cut() && name != "33 lines of usage" || joined.Cut() != s.Cut() {
			t.Errorf("%s: Cut differs: %+v, joined %+v", name, s, joined)
		}
	}
	if s := fileOf(strings.Repeat("Content-Usage: /x search=n\n", 33)); s.Cut() {
		t.Error("lines that do not apply count against the limit")
	}
}

func TestDictionary(t *testing.T) {
	t.Parallel()
	s := preferences.Join(
		robots("User-agent: *\nAllow: /\n\nContent-Usage: train-ai=n, genai=y, odd=x", "/", "a"),
		preferences.Fields(http.Header{}, directives.NoIndex))
	s = preferences.Join(s, fieldOf("Content-Signal", "use=reference"), fieldOf("Content-Usage", "noindex=y"),
		fieldOf("Link", linkTo("https://a.example/l.xml")), preferences.Page(0, nil, []string{"/caf\u00e9"}))
	said := []directives.Directive{
		{Name: "noindex"},
		{Name: "unavailable_after", Value: time.Unix(1790000000, 999)},
		{Name: "max-snippet", Value: -1},
		{Name: "max-image-preview", Value: "large"},
	}
	const want = "search=n;from=x-robots-tag, train-ai=n;from=robots;line=4, use=reference;from=content-signal, noindex, " +
		`unavailable-after=@1790000000, max-snippet=-1, max-image-preview=large, ` +
		`license=("https://a.example/l.xml";from=link %"/caf%c3%a9";from=meta), genai=y;from=robots;line=4`
	got, cut := preferences.Dictionary(s, said)
	if got != want || cut {
		t.Errorf("got  %s, cut %t\nwant %s", got, cut, want)
	}
	if _, err := httpsfv.UnmarshalDictionary([]string{got}); err != nil {
		t.Error(err)
	}
	// Unknown labels never displace known ones.
	var labels []string
	for i := range 32 {
		labels = append(labels, fmt.Sprintf("a%02d%s=n", i, strings.Repeat("x", 60)))
	}
	got, cut = preferences.Dictionary(preferences.Join(s, fieldOf("Content-Usage", strings.Join(labels, ", "))), said)
	if known, _, _ := strings.Cut(want, ", genai"); !strings.HasPrefix(got, known) || !cut || len(got) > preferences.MaxDictionary {
		t.Errorf("got  %s, cut %t", got, cut)
	}
}

// Logs have a statement in the form of its member in the crawler's field.
func TestStatementIsItsMember(t *testing.T) {
	t.Parallel()
	s := robots("User-agent: *\nContent-Usage: train-ai=n\nAllow: /", "/", "a")
	if got, want := s.Deciding(preferences.TrainAI).String(), field(s); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzJoin checks that the order and repetition of Sets do not matter, that any n wins, and the
// limits.
func FuzzJoin(f *testing.F) {
	f.Add("Content-Usage: train-ai=n, search=y", "search=no, use=full", "1")
	f.Add("Content-Signal: /a ai-train=no,use=immediate\nLicense: https://a.example/", "a=yes", "0")
	f.Add("Content-Usage: a=n,b=n,c=n,d=n,e=n,f=n,g=n,h=n,i=n,j=n,k=n,l=n,m=n,n=n,o=n,p=n,q=n,r=n,s=n,t=n,u=n,v=n", "aa=no,bb=no,cc=no,dd=no,ee=no,ff=no,gg=no,hh=no,ii=no,jj=no", "")
	f.Fuzz(func(t *testing.T, lines, signal, reservation string) {
		a := robots("User-agent: *\n"+lines, "/a", "x")
		b := preferences.Fields(http.Header{"Content-Signal": {signal}, "Content-Usage": {lines}, "Tdm-Reservation": {reservation}}, 0)
		c := preferences.Page([]directives.Flags{directives.NoAI, 0}[len(lines)%2], reserving(signal), nil)
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
					t.Errorf("%s: the value n is lost", d)
				}
			}
		}
	})
}

// checkSet checks the limits and the crawler's field of any Set.
func checkSet(t *testing.T, s preferences.Set) {
	t.Helper()
	for _, d := range s.Decided() {
		if len(d.Purpose) > 64 || len(d.Text) > 512 || d.Value == preferences.Unknown && d.Text == "" {
			t.Errorf("invalid statement %+v", d)
		}
		if d.Purpose != preferences.License && s.Deciding(d.Purpose) != d {
			t.Errorf("statement %+v does not decide", d)
		}
	}
	field := field(s)
	d, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil || len(field) > preferences.MaxDictionary {
		t.Errorf("the dictionary has %d bytes: %v", len(field), err)
		return
	}
	for _, key := range d.Names() {
		if key == preferences.Use || key == preferences.License {
			continue
		}
		if m, _ := d.Get(key); m.(httpsfv.Item).Value != httpsfv.Token(s.Value(key).String()) {
			t.Errorf("the dictionary's %s is not %s", key, s.Value(key))
		}
	}
}

// FuzzRobots reads any file. The preferences for a target must not depend on its spelling, Lint
// must be in order and limited, and a file repeated twice must give the same preferences.
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
			t.Errorf("the empty target and the root have different results")
		}
		last := 0
		for _, w := range preferences.Lint(data) {
			if w.Line < last || w.Code == "" || w.Message == "" {
				t.Errorf("warning %+v after line %d", w, last)
			}
			last = w.Line
		}
	})
}

// FuzzTDMFile reads any file. A target must get only statements about tdm and train-ai.
func FuzzTDMFile(f *testing.F) {
	f.Add([]byte(tdmAll), "/x")
	f.Add([]byte(tdmGroups), "/directory-b/images/a.jpg")
	f.Fuzz(func(t *testing.T, data []byte, target string) {
		rules, err := preferences.ParseTDMFile(data)
		s := rules.Apply(target).Set()
		if err != nil && !s.Empty() {
			t.Errorf("got error %v and %+v, want no statement", err, s)
		}
		checkSet(t, s)
		for _, d := range s.Decided() {
			if d.Purpose != preferences.TDM && (d.Purpose != preferences.TrainAI || s.Value(preferences.TDM) != preferences.No) {
				t.Errorf("unexpected statement %+v", d)
			}
		}
	})
}

// FuzzFields reads any field lines.
func FuzzFields(f *testing.F) {
	f.Add("train-ai=n", "search=no", `<a>; rel="license"; type="application/rsl+xml", <b>;rel=license;type=application/rsl+xml`)
	f.Add("a;b=\"", ",=,use=", `<>;;=;"`)
	f.Fuzz(func(t *testing.T, usage, signal, link string) {
		s := preferences.Fields(http.Header{"Content-Usage": {usage, usage}, "Content-Signal": {signal}, "Link": {link, link}}, 0)
		checkSet(t, s)
		for _, l := range s.Decided() {
			if l.Purpose == preferences.License && (l.Text == "" || !strings.Contains(link, l.Text)) {
				t.Errorf("license %+v is not in the link", l)
			}
		}
	})
}
