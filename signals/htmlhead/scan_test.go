package htmlhead

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// robots returns what a page with these tags gives.
func robots(tags ...Named) Metas { return Metas{Robots: tags} }

func TestScan(t *testing.T) {
	t.Parallel()
	noindex := robots(Named{"robots", "noindex"})
	for _, c := range []struct {
		name, page string
		want       Metas
	}{
		{
			"Google's guide of 2012, Using the Robots Meta Tag",
			`<!DOCTYPE html><html><head><meta name="robots" value="noindex" /></head>`,
			robots(Named{"robots", "noindex"}),
		},
		{
			"Google's guide of 2012, Handling combined",
			`<head><meta name="robots" content="noindex, nofollow"></head>`,
			robots(Named{"robots", "noindex, nofollow"}),
		},
		{
			"Google's guide of 2012, several crawlers", `<head><meta name="robots" content="nofollow"><meta name="googlebot" content="noindex"></head>`,
			robots(Named{"robots", "nofollow"}, Named{"googlebot", "noindex"}),
		},
		{"another crawler", `<head><meta name="bingbot" content="noindex"></head>`, Metas{}},
		{"case", `<HEAD><META CONTENT=noindex NAME=Robots></HEAD>`, noindex},
		{"an agent's name in another case", `<head><meta name="GoogleBot" content="noindex"></head>`, robots(Named{"googlebot", "noindex"})},
		{"space in a name", "<head><meta\nname=' robots\t' content=noindex></head>", noindex},
		{"quotes and angles", `<head><meta content="a > b, noindex" name='robots'></head>`, robots(Named{"robots", "a > b, noindex"})},
		{"references in a content", `<head><meta name=robots content="no&#105;ndex"></head>`, noindex},
		{"references in a name", `<head><meta name="&#114;obots" content="noindex"></head>`, noindex},
		{"references in a name of a long head", `<head>` + strings.Repeat("<style></style>", 1000) + `<meta name="&#x72;obots" content="noindex"></head>`, noindex},
		{"the first of equal attributes", `<head><meta name=robots name=x content=noindex content=all></head>`, noindex},
		{"of XHTML", `<head><meta name="robots" content="noindex"/></head>`, noindex},
		{
			"TDMRep section 5.2",
			`<head><meta name="tdm-reservation" content="1">` +
				`<meta name="TDM-Policy" content="https://provider.com/policies/policy.json"></head>`,
			Metas{TDM: []Named{{"tdm-reservation", "1"}, {"tdm-policy", "https://provider.com/policies/policy.json"}}},
		},
		{"another name of tdm", `<head><meta name="tdm-other" content="1"></head>`, Metas{}},
		{
			"RSL 1.0",
			`<head><link rel="license" type="application/rsl+xml" href="https://example.com/license.xml"></head>`,
			Metas{Licenses: []string{"https://example.com/license.xml"}},
		},
		{
			"RSL in several relations",
			`<head><link rel="nofollow LICENSE" type="Application/RSL+XML; v=1" href=" /l.xml "></head>`,
			Metas{Licenses: []string{"/l.xml"}},
		},
		{"a licence of another type", `<head><link rel=license type=text/html href=/robots.html></head>`, Metas{}},
		{"another relation", `<head><link rel=alternate type="application/rsl+xml" href=/l.xml></head>`, Metas{}},
		{"RSL without an address", `<head><link rel=license type="application/rsl+xml"></head>`, Metas{}},

		{"a comment", `<head><!-- <meta name=robots content=none> </head> --><meta name=robots content=noindex></head>`, noindex},
		{"a script", `<head><script>"<meta name=robots content=none></head><body>"</script><meta name=robots content=noindex></head>`, noindex},
		{"a style", `<head><style><meta name=robots content=none></style><meta name=robots content=noindex></head>`, noindex},
		{"a title", `<head><title><meta name=robots content=none></head></title><meta name=robots content=noindex></head>`, noindex},
		{"a textarea", `<textarea><meta name=robots content=none></textarea></head>`, Metas{}},
		{"an attribute", `<head><meta name=x content="<meta name=robots content=none>"></head>`, Metas{}},
		{"noscript", `<head><noscript><meta name=robots content=noindex></noscript></head>`, noindex},
		{"a template", `<head><template></head><body><template></template><meta name=robots content=none></template>` +
			`<meta name=robots content=noindex></head>`, noindex},
		{"a template without an end", `<head><template><meta name=robots content=none></head>`, Metas{}},
		{"HTML 13.2.6.4.6: behind the head", `<head></head> <!-- x --><script></script><meta name=robots content=noindex><body>`, noindex},
		{"behind a tag of the body", `<head></head><p><meta name=robots content=none>`, Metas{}},
		{"in the body", `<body><meta name=robots content=none>`, Metas{}},
		{"behind a header", `<head><header></header><meta name=robots content=noindex></head>`, noindex},
		{"no head at all", `<meta name=robots content=noindex><p>`, noindex},
		{"half a tag", `<head><meta name=robots content=none`, Metas{}},
		{"a mark of UTF-8", "\xef\xbb\xbf<head><meta name=robots content=noindex></head>", noindex},
		{"another element", `<head><metadata name=robots content=none><linker></head>`, Metas{}},
		{"a tag of 4 KiB", `<head><meta name=robots content=noindex ` + strings.Repeat("x", maxTag-35) + `></head>`, noindex},
		{"nothing", "", Metas{}},
	} {
		o := Options{Names: []string{"", "ExampleBot", "Googlebot"}, Whole: true}
		if got, cut := Scan([]byte(c.page), o); cut || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, cut %t, want %+v", c.name, got, cut, c.want)
		}
	}
}

// TestScanLongTag checks that a tag that is too long to be examined is reported as cut.
func TestScanLongTag(t *testing.T) {
	t.Parallel()
	page := `<head><meta name=robots content=noindex ` + strings.Repeat("x", maxTag-34) + `></head><body>`
	if got, cut := Scan([]byte(page), Options{}); !cut || len(got.Robots) > 0 {
		t.Errorf("Scan = %+v, cut %t, want no tag and true", got, cut)
	}
}

// TestScanCDATA checks that the content of a CDATA section of XHTML is text (XML 1.0 section 2.7).
func TestScanCDATA(t *testing.T) {
	t.Parallel()
	page := `<head><title/></head><p><![CDATA[ > <meta name="robots" content="noindex"/> ]]></p>`
	if got, _ := Scan([]byte(strings.ReplaceAll(page, "</head><p>", "<p>")), Options{XHTML: true, Whole: true}); len(got.Robots) > 0 {
		t.Errorf("Scan = %+v, want no tag", got)
	}
}

func TestScanXHTML(t *testing.T) {
	t.Parallel()
	const page = `<head><script src="x"/><title/><meta name="robots" content="noindex"/></head>`
	for xhtml, want := range map[bool]Metas{true: robots(Named{"robots", "noindex"}), false: {}} {
		if got, _ := Scan([]byte(page), Options{XHTML: xhtml, Whole: true}); !reflect.DeepEqual(got, want) {
			t.Errorf("XHTML %t: %+v, want %+v", xhtml, got, want)
		}
	}
}

func TestScanCut(t *testing.T) {
	t.Parallel()
	const tag = `<meta name=robots content=x>`
	for _, c := range []struct {
		name, page string
		whole, cut bool
	}{
		{"the head has ended", "<head>" + tag + "</head><p>", false, false},
		{"the body has begun", "<head>" + tag + "<body>", false, false},
		{"the head goes on", "<head>" + tag + "<title>", false, true},
		{"the head goes on, and is all", "<head>" + tag + "<title>", true, false},
		{"without a name: the head has ended", "<head></HEAD><p>", false, false},
		{"without a name: the body has begun", "<BODY class=x>", false, false},
		{"without a name: the head goes on", "<head><title>", false, true},
		{"without a name: the head goes on, and is all", "<head><title>", true, false},
		{"33 tags", "<head>" + strings.Repeat(tag, maxFound+1) + "</head>", true, true},
		{"32 tags", "<head>" + strings.Repeat(tag, maxFound) + "</head>", true, false},
		{"33 tags, and the body has begun", strings.Repeat(tag, maxFound+1) + "<body>", true, true},
		{"UTF-16, big", "\xfe\xff\x00<\x00h", true, true},
		{"UTF-16, little", "\xff\xfe<\x00h\x00", true, true},
		{"UTF-16 without a mark, big", "\x00<\x00h", true, true},
		{"UTF-16 without a mark, little", "<\x00h\x00", true, true},
		{"UTF-32, little", "\xff\xfe\x00\x00<\x00\x00\x00", true, true},
		{"nothing yet", "", false, true},
	} {
		m, cut := Scan([]byte(c.page), Options{Whole: c.whole})
		if cut != c.cut || len(m.Robots) > maxFound {
			t.Errorf("%s: Scan gives cut %t and %d tags", c.name, cut, len(m.Robots))
		}
	}
}

// FuzzScan checks that the search before the tokenizer misses nothing, in pages of all sizes.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		"<head><meta name=robots content=noindex></head>",
		"<head><!-- <meta name=robots --><script><meta name=examplebot></script>" +
			"<link rel=license type=application/rsl+xml href=/></head>",
		"<META/NAME='tdm-policy'content=x/><link\frel=license><template><meta name=robots></template><body>",
		"<meta name=\"a>b\" =name=robots content='<meta'><noscript><meta name=ROBOTS></noscript>",
		"<meta name=&#114;obots><meta name=\x00robots><plaintext><meta name=robots>",
		page(300, 2000),
	} {
		f.Add([]byte(seed), "ExampleBot", false)
	}
	f.Add([]byte("<meta name=\u212aiwi>"), "kiwi", false) // the Kelvin sign is not a k, although Unicode folds it to one
	f.Add([]byte("<meta name=\x000>"), "\xd70", false)
	f.Fuzz(func(t *testing.T, page []byte, name string, flag bool) {
		o := Options{Names: []string{name}, XHTML: flag, Whole: flag}
		got, cut := Scan(page, o)
		if isWide(page) {
			return
		}
		want, wantCut := o.tokenize(page)
		if !reflect.DeepEqual(got, want) || cut && !wantCut {
			t.Errorf("%q for %q: %+v, cut %t; the tokenizer alone %+v, cut %t", page, name, got, cut, want, wantCut)
		}
		if found := len(want.Robots) + len(want.TDM) + len(want.Licenses); found > 0 && !o.mayHold(page) {
			t.Errorf("%q for %q: the search misses %+v", page, name, want)
		}
		if n := len(got.Robots) + len(got.TDM) + len(got.Licenses); n > 3*maxFound {
			t.Errorf("got %d tags, want at most %d", n, 3*maxFound)
		}
	})
}

// TestSearchLosesNothing does the same as FuzzScan for the HTML pages in the corpus of robots.txt
// files.
func TestSearchLosesNothing(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("CRAWLGATE_CORPUS")
	if dir == "" {
		t.Skip("CRAWLGATE_CORPUS names no folder")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	pages, found := 0, 0
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil || !containsFold(page, "<head") {
			continue
		}
		pages++
		o := Options{Names: []string{"Googlebot"}}
		got, _ := Scan(page, o)
		want, _ := o.tokenize(page)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, the tokenizer alone %+v", file, got, want)
		}
		found += len(got.Robots)
	}
	if pages == 0 {
		t.Error("the corpus has no page")
	}
	t.Logf("%d pages, %d tags", pages, found)
}

// page returns an ordinary page with a head and a body of the given sizes in bytes.
func page(head, body int, tags ...string) string {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>A page &amp; its title</title>\n")
	for _, tag := range tags {
		b.WriteString(tag)
	}
	for i := 0; b.Len() < head; i++ {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "<meta property=\"og:image:%d\" content=\"https://example.com/i/%d.jpg?a=1&amp;b=2\">\n", i, i)
		case 1:
			fmt.Fprintf(&b, "<link rel=\"stylesheet\" id=\"s-%d\" "+
				"href=\"https://example.com/wp-content/plugins/p%d/style.min.css?ver=6.%d\" media=\"all\" />\n", i, i, i)
		case 2:
			fmt.Fprintf(&b, "<script>window.dataLayer = window.dataLayer || []; "+
				"function gtag(){dataLayer.push(arguments);} gtag('config', 'G-%d');</script>\n", i)
		case 3:
			fmt.Fprintf(&b, "<script src=\"https://example.com/js/%d.js\" defer></script>\n", i)
		}
	}
	b.WriteString("</head><body class=\"page\">\n")
	for i := 0; b.Len() < head+body; i++ {
		fmt.Fprintf(&b, "<li class=\"item item-%d\">"+
			"<a href=\"/products/%d\"><span>Product %d</span></a> some words about it, as pages have them</li>\n", i, i, i)
	}
	return b.String()
}

func BenchmarkScan(b *testing.B) {
	o := Options{Names: []string{"ExampleBot-News", "ExampleBot"}}
	const tag = `<meta name="robots" content="index, follow, max-image-preview:large, max-snippet:-1, max-video-preview:-1">` + "\n"
	for name, text := range map[string]string{
		"no name":     page(4<<10, 60<<10),
		"robots":      page(4<<10, 60<<10, tag),
		"head 64 KiB": page(64<<10, 0, tag),
		"without end": page(64<<10, 0),
	} {
		b.Run(name, func(b *testing.B) {
			p := []byte(text)[:min(len(text), 64<<10)]
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				_, benchCut = Scan(p, o)
			}
		})
	}
}

var benchCut bool
