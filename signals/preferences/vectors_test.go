package preferences_test

import (
	_ "embed"
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// text formats the decided statements of a Set as members of the crawler's field, and the rest of
// the Set.
func text(s preferences.Set) string {
	var parts []string
	for _, d := range s.Decided() {
		parts = append(parts, d.String())
	}
	return strings.Join(parts, ", ")
}

// robots returns the Set of a robots.txt for an agent that also obeys control tokens.
func robots(file, target string, tokens ...string) preferences.Set {
	rs := robotstxt.Parse([]byte(file))
	groups := preferences.AppendGroups(nil, rs, robotstxt.Agent{Tokens: tokens[:1]}, tokens[1:])
	return preferences.Robots(rs, groups, target)
}

//go:embed testdata/cloudflare-managed-robots.txt
var cloudflareManaged string

// attachExample is the figure of draft-ietf-aipref-attach-05 section 3.4.
const attachExample = `User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: train-ai=y
`

func TestRobotsVectors(t *testing.T) {
	t.Parallel()
	const group = "User-agent: *\nAllow: /\n" // what follows is line 3
	for _, c := range []struct{ source, file, agents, target, want string }{
		{"aipref-attach-05 1.2", "User-Agent: *\nAllow: /\nContent-Usage: train-ai=n\n", "a", "/", "train-ai=n;from=robots;line=3"},
		{"aipref-attach-05 3.4, /test", attachExample, "a", "/test", "train-ai=n;from=robots;line=4"},
		{"aipref-attach-05 3.4, /never/test: of use only where it may be fetched", attachExample, "a", "/never/test", "train-ai=n;from=robots;line=4"},
		{"aipref-attach-05 3.4, /ai-ok/test", attachExample, "a", "/ai-ok/test", "train-ai=y;from=robots;line=5"},
		{"aipref-attach-05 3.4, ExampleBot", attachExample, "ExampleBot", "/never/test", "train-ai=y;from=robots;line=9"},
		{
			"aipref-attach-05 3.1: equal paths apply separately", group + "Content-Usage: /a train-ai=n\nContent-Usage: /a train-ai=y, search=y", "a", "/a",
			"search=y;from=robots;line=4, train-ai=n;from=robots;line=3",
		},
		{"aipref-attach-05 3.1: order means nothing", group + "Content-Usage: /a/b train-ai=y\nContent-Usage: /a train-ai=n", "a", "/a/b", "train-ai=y;from=robots;line=3"},
		{"aipref-attach-05 3.1: escapes", group + "Content-Usage: /a%20b train-ai=n", "a", "/a b", "train-ai=n;from=robots;line=3"},
		{"aipref-attach-05 3.2: blanks around the key", group + " content-usage\t:\t/a\ttrain-ai=n # why", "a", "/a", "train-ai=n;from=robots;line=3"},
		{"aipref-attach-05 3: not before a group", "Content-Usage: train-ai=n\n" + group, "a", "/", ""},
		{"aipref-vocab-07 6", group + "Content-Usage: train-ai=y, search=n", "a", "/", "search=n;from=robots;line=3, train-ai=y;from=robots;line=3"},
		{"aipref-vocab-08 4.2: ai-use is the use as input", group + "Content-Usage: ai-use=n", "a", "/", "ai-input=n;from=robots;line=3"},
		{
			"aipref-vocab-08 4.3: search does not follow from the others", group + "Content-Usage: train-ai=n, ai-use=n, search=y", "a", "/",
			"search=y;from=robots;line=3, ai-input=n;from=robots;line=3, train-ai=n;from=robots;line=3",
		},
		{"aipref-vocab-08 4.2, and the signal: any n wins", group + "Content-Usage: ai-use=y\nContent-Signal: ai-input=no", "a", "/", "ai-input=n;from=robots;line=4"},
		{"aipref-vocab-07 6.1: case", group + "Content-Usage: Train-AI=n", "a", "/", ""},
		{"aipref-vocab-07 6.2: tokens of more letters", group + "Content-Usage: train-ai=no, search=yes", "a", "/", ""},
		{"aipref-vocab-07 6.2: case", group + "Content-Usage: train-ai=N", "a", "/", ""},
		{"aipref-vocab-07 6.5.1: the last of equal keys", group + `Content-Usage: train-ai=y, train-ai, search=n, search="n"`, "a", "/", ""},
		{"aipref-vocab-07 6.5.1: a dictionary that cannot be read", group + "Content-Usage: train-ai=n, SEARCH=n", "a", "/", ""},
		{"aipref-vocab-07 6.5.2: parameters of another value", group + "Content-Usage: train-ai;allow=n, train-ai=y", "a", "/", "train-ai=y;from=robots;line=3"},
		{"aipref-vocab-07 6.5.2: parameters alone", group + `Content-Usage: train-ai;has;parameters="?";`, "a", "/", ""},
		{"aipref-vocab-07 6.5: other types", group + "Content-Usage: a=(n), b=1, c=?0, d=:bg==:, e=@1, f=1.5, search=n", "a", "/", "search=n;from=robots;line=3"},
		{"aipref-vocab-07 6.4: ai-input is no label, free names stay", group + "Content-Usage: ai-input=n, tdm=n, use=n, license=n, genai=n", "a", "/", "genai=n;from=robots;line=3"},
		{"Cloudflare, managed robots.txt", cloudflareManaged, "ExampleBot", "/", "search=y;from=robots;line=29, train-ai=n;from=robots;line=29"},
		{"Cloudflare, managed robots.txt: a group without signals", cloudflareManaged, "GPTBot", "/", ""},
		{"Cloudflare, managed robots.txt: a control token that no group names", cloudflareManaged, "GPTBot,other", "/", ""},
		{"Cloudflare, managed robots.txt: control tokens", cloudflareManaged, "acme,GPTBot", "/", "search=y;from=robots;line=29, train-ai=n;from=robots;line=29"},
		{
			"contentsignals.org, the example", "User-Agent: *\nContent-Signal: ai-train=no, search=yes, ai-input=yes\nAllow: /\n", "a", "/",
			"search=y;from=robots;line=2, ai-input=y;from=robots;line=2, train-ai=n;from=robots;line=2",
		},
		{
			"Cloudflare, use", group + "Content-Signal: search=yes,ai-train=no,use=reference", "a", "/",
			"search=y;from=robots;line=3, train-ai=n;from=robots;line=3, use=reference;from=robots;line=3",
		},
		{"Content-Signal: the strictest use", group + "Content-Signal: use=full\nContent-Signal: use=immediate\nContent-Signal: use=none", "a", "/", "use=immediate;from=robots;line=4"},
		{"Content-Signal: case", group + "Content-Signal: AI-Train = No", "a", "/", "train-ai=n;from=robots;line=3"},
		{"Content-Signal: a known mistake", group + "Content-Signal: ai-train=disallow, search", "a", "/", ""},
		{"Content-Signal: a label of Content-Usage, and free names", group + "Content-Signal: train-ai=no, cite=no", "a", "/", "cite=n;from=robots;line=3"},
		{"Content-Signal: a path", group + "Content-Signal: /a ai-train=no\nContent-Signal: ai-train=yes", "a", "/b", "train-ai=y;from=robots;line=4"},
		{"Content-Signal: no path lifts a no", group + "Content-Signal: /a ai-train=yes\nContent-Signal: ai-train=no", "a", "/a", "train-ai=n;from=robots;line=4"},
		{"Content-Signal: before all groups", "Content-Signal: ai-train=no\nUser-agent: a\nContent-Signal: ai-train=yes\nAllow: /", "a", "/", "train-ai=n;from=robots;line=1"},
		{"both keys: any n wins", group + "Content-Usage: train-ai=y\nContent-Signal: ai-train=no", "a", "/", "train-ai=n;from=robots;line=4"},
		{
			"also_obey: any n wins", "User-agent: a\nContent-Usage: train-ai=y\nAllow: /\nUser-agent: CCBot\nContent-Usage: train-ai=n\nAllow: /", "a,ccbot", "/",
			"train-ai=n;from=robots;line=5",
		},
		{
			"RSL 1.0: a License line is everybody's", "License: https://a.example/1.xml\nUser-agent: b\nAllow: /\nLicense: /relative.xml\nLicense: https://a.example/2.xml", "a", "/",
			`license="https://a.example/1.xml";from=robots;line=1, license="https://a.example/2.xml";from=robots;line=5`,
		},
	} {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			if got := text(robots(c.file, c.target, strings.Split(c.agents, ",")...)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// response reads the field lines of a response.
func response(lines string) http.Header {
	h := make(http.Header)
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

func TestFieldVectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source, lines string
		flags         directives.Flags
		want          string
	}{
		{
			source: "aipref-attach-05 1.2", lines: "Date: Wed, 23 Apr 2025 04:48:02 GMT\nContent-Type: text/plain\nContent-Usage: train-ai=n",
			want: "train-ai=n;from=content-usage",
		},
		{
			source: "RFC 9651 4.2: lines are one dictionary", lines: "Content-Usage: train-ai=n, search=n\nContent-Usage: search=y",
			want: "search=y;from=content-usage, train-ai=n;from=content-usage",
		},
		{source: "RFC 9651 4.2: one bad line spoils all", lines: "Content-Usage: train-ai=n\nContent-Usage: A=y"},
		{
			source: "Content-Signal", lines: "Content-Signal: ai-train=yes, search=yes, ai-input=yes\nContent-Signal: search=no,use=full",
			want: "search=n;from=content-signal, ai-input=y;from=content-signal, train-ai=y;from=content-signal, use=full;from=content-signal",
		},
		{
			source: "TDMRep, header field, first example", lines: "Content-type: image/jpg\ntdm-reservation: 1",
			want: "train-ai=n;from=tdm-reservation, tdm=n;from=tdm-reservation",
		},
		{
			source: "TDMRep, header field, second example", lines: "tdm-reservation: 1\ntdm-policy: https://provider.com/policies/policy.json",
			want: "train-ai=n;from=tdm-reservation, tdm=n;from=tdm-reservation",
		},
		{
			source: "TDMRep: 0 reserves nothing, and its policy is not read", lines: "tdm-reservation: 0\ntdm-policy: https://provider.com/p.json",
			want: "tdm=y;from=tdm-reservation",
		},
		{source: "TDMRep: other values are as none", lines: "tdm-reservation: true\ntdm-reservation: 01"},
		{source: "RSL 1.0", lines: `Link: <https://a.example/l.xml>; rel="license"; type="application/rsl+xml"`, want: `license="https://a.example/l.xml";from=link`},
		{
			source: "RFC 8288: several links, other relations and types", lines: `Link: </style.css>; rel=preload; as=style, <a,b>; title="x, \"<y>; rel=license"; rel=license;` +
				` type=text/html, <https://a.example/1>;TYPE=application/rsl+xml ; rel="next LICENSE"` + "\nLink: <x>; rel=license, nonsense <y>; rel=license; type=application/rsl+xml",
			want: `license="https://a.example/1";from=link, license="y";from=link`,
		},
		{
			source: "X-Robots-Tag, read elsewhere", flags: directives.NoIndex | directives.NoArchive | directives.NoAI,
			want: "search=n;from=x-robots-tag, train-ai=n;from=x-robots-tag, archive=n;from=x-robots-tag",
		},
		{source: "none"},
	} {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			if got := text(preferences.Fields(response(c.lines), c.flags)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// The examples of TDMRep's "TDM File on the Origin Server".
const (
	tdmAll    = `[{"location": "/", "tdm-reservation": 1}]`
	tdmGroups = `[
		{"location": "/directory-a/", "tdm-reservation": 1},
		{"location": "/directory-b/html/", "tdm-reservation": 1, "tdm-policy":"https://provider.com/policies/policy.json"},
		{"location": "/directory-b/images/*.jpg", "tdm-reservation": 0}
	]`
)

func TestTDMFileVectors(t *testing.T) {
	t.Parallel()
	const reserved = "train-ai=n;from=tdmrep, tdm=n;from=tdmrep"
	for _, c := range []struct{ source, file, target, want string }{
		{"TDMRep, file, first example", tdmAll, "/any", reserved},
		{"TDMRep, file, second example: reserved", tdmGroups, "/directory-a/x.pdf", reserved},
		{"TDMRep, file, second example: with a policy", tdmGroups, "/directory-b/html/x", reserved + ""},
		{"TDMRep, file, second example: not reserved", tdmGroups, "/directory-b/images/x.jpg", "tdm=y;from=tdmrep"},
		{"TDMRep, file, second example: no rule", tdmGroups, "/directory-b/images/x.png", ""},
		{"TDMRep: $ and escapes", `[{"location":"/this/path/exactly$","tdm-reservation":1},{"location":"/path/foo-%24","tdm-reservation":1}]`, "/path/foo-$", reserved},
		{"TDMRep: $ at the end", `[{"location":"/this/path/exactly$","tdm-reservation":1}]`, "/this/path/exactly/not", ""},
		{"TDMRep: the first in sequence wins", `[{"location":"/a","tdm-reservation":0},{"location":"/a/b","tdm-reservation":1}]`, "/a/b", "tdm=y;from=tdmrep"},
		{"TDMRep: other values are unset, and still the first", `[{"location":"/","tdm-reservation":"1"},{"location":"/","tdm-reservation":1}]`, "/", ""},
		{"RFC 8259 6: 1.0 is the number 1", `[{"location":"/a","tdm-reservation":1.0},{"location":"/","tdm-reservation":0e3}]`, "/a", reserved},
		{"RFC 8259 6: 0e3 is the number 0", `[{"location":"/a","tdm-reservation":1.0},{"location":"/","tdm-reservation":0e3}]`, "/", "tdm=y;from=tdmrep"},
		{"in doubt the strictest: a reservation twice", `[{"location":"/b","tdm-reservation":1,"TDM-Reservation":0}]`, "/b", reserved},
		{"in doubt the strictest: a location twice", `[{"location":"/a","location":7,"tdm-reservation":0}]`, "/b", reserved},
		{"a byte order mark, strange rules", "\xEF\xBB\xBF" + `[1,null,{"location":1},{"location":"a"},{"tdm-reservation":1},{"location":"/","tdm-reservation":1,"tdm-policy":[]}]`, "/", reserved},
	} {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			rules, err := preferences.ParseTDMFile([]byte(c.file))
			if err != nil {
				t.Fatal(err)
			}
			if got := text(rules.Apply(c.target).Set()); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	for _, bad := range []string{
		"", "{}", "[", "<html>", "[" + strings.Repeat("{},", 1000) + "{}]", `["` + strings.Repeat("a", 64<<10) + `"]`,
	} {
		if rules, err := preferences.ParseTDMFile([]byte(bad)); err == nil || !rules.Apply("/").Set().Empty() {
			t.Errorf("ParseTDMFile(%.20q): got error %v, want one and no rules", bad, err)
		}
	}
}

// reserving returns meta elements of TDMRep.
func reserving(values ...string) (tags []directives.Named) {
	for _, value := range values {
		tags = append(tags, directives.Named{Name: "tdm-reservation", Content: value})
	}
	return tags
}

// TDMRep has its own order: file, field, meta element. A later one supersedes, and a missing one
// does not reset anything ("Processing priority"). The result is joined with the other sources.
func TestTDMOrder(t *testing.T) {
	t.Parallel()
	rules, err := preferences.ParseTDMFile([]byte(`[{"location":"/","tdm-reservation":1,"tdm-policy":"p"}]`))
	if err != nil {
		t.Fatal(err)
	}
	file := rules.Apply("/").Set()
	field := func(lines string) preferences.Set { return preferences.Fields(response(lines), 0) }
	meta := func(values ...string) preferences.Set { return preferences.Page(0, reserving(values...), nil) }
	for _, c := range []struct {
		name string
		sets []preferences.Set
		want string
	}{
		{
			"TDMRep, HTML, the example",
			[]preferences.Set{meta("1")},
			"train-ai=n;from=meta, tdm=n;from=meta",
		},
		{"the field supersedes the file", []preferences.Set{file, field("tdm-reservation: 0")}, "tdm=y;from=tdm-reservation"},
		{
			"the meta element supersedes both",
			[]preferences.Set{file, field("tdm-reservation: 0"), meta("1")},
			"train-ai=n;from=meta, tdm=n;from=meta",
		},
		{
			"two meta elements: the strictest",
			[]preferences.Set{meta("0", "\n1 ", "0")},
			"train-ai=n;from=meta, tdm=n;from=meta",
		},
		{
			"silence resets nothing",
			[]preferences.Set{file, field("tdm-policy: f"), meta("yes")},
			"train-ai=n;from=tdmrep, tdm=n;from=tdmrep",
		},
		{
			"two fields: the strictest",
			[]preferences.Set{field("tdm-reservation: 0\ntdm-reservation: 1")},
			"train-ai=n;from=tdm-reservation, tdm=n;from=tdm-reservation",
		},
		{
			"then any n wins",
			[]preferences.Set{field("tdm-reservation: 0\nContent-Usage: train-ai=n")},
			"train-ai=n;from=content-usage, tdm=y;from=tdm-reservation",
		},
		{
			"a reservation against a y",
			[]preferences.Set{file, field("Content-Usage: train-ai=y")},
			"train-ai=n;from=tdmrep, tdm=n;from=tdmrep",
		},
	} {
		if got := text(preferences.Join(c.sets...)); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	p := preferences.Page(directives.NoAI|directives.NoIndex, []directives.Named{{Name: "tdm-policy", Content: "1"}}, []string{"/l.xml", ""})
	if got, want := text(p), `search=n;from=meta, train-ai=n;from=meta, license="/l.xml";from=meta`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
