package docsite

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func search(t *testing.T, query string) []result {
	t.Helper()
	_, found := load().search(query)
	if len(found) > maxResults {
		t.Errorf("search of %q: %d results, want at most maxResults", query, len(found))
	}
	for _, r := range found {
		excerpt := r.Before + r.Match + r.After
		if !utf8.ValidString(excerpt) || len(excerpt) > excerptBefore+excerptAfter+maxQuery+2*len("… ") {
			t.Errorf("search of %q: excerpt of %d bytes: %s", query, len(excerpt), excerpt)
		}
		path, _, _ := strings.Cut(r.URL, "#")
		if load().pages[path] == nil {
			t.Errorf("search of %q finds %s, which is not a page", query, r.URL)
		}
	}
	return found
}

// TestSearch checks that sections with all words are found, and that those with the words in their
// heading come first.
func TestSearch(t *testing.T) {
	t.Parallel()
	for _, p := range load().order {
		found := search(t, p.Title)
		for word := range strings.FieldsSeq(strings.ToLower(p.Title)) {
			if len(found) == 0 || !strings.Contains(strings.ToLower(found[0].Heading), word) {
				t.Errorf("%q is the title of %s, but is not found first: %+v", p.Title, p.URL, found)
				break
			}
		}
	}
	if found := search(t, "RoBoTs"); len(found) != maxResults {
		t.Errorf("search of robots: %d results, want maxResults", len(found))
	}
	for _, query := range []string{"crawl-delay", "redis fleet", "User-Agent", "tls certificate"} {
		found := search(t, query)
		if len(found) == 0 {
			t.Errorf("search of %q finds nothing", query)
		}
		for i, r := range found {
			if i > 0 && r.weight > found[i-1].weight {
				t.Errorf("search of %q: %s has more weight than the previous result", query, r.URL)
			}
			for word := range strings.FieldsSeq(strings.ToLower(query)) {
				if !contains(r, word) {
					t.Errorf("search of %q: %s lacks %s", query, r.URL, word)
				}
			}
		}
	}
	for _, query := range []string{"xyzzy", "robots xyzzy", " ", strings.Repeat("x", 5000)} {
		if found := search(t, query); strings.TrimSpace(query) != "" && len(found) > 0 {
			t.Errorf("search of %.20q: got %+v, want nothing", query, found)
		}
	}
}

func contains(r result, word string) bool {
	path, id, _ := strings.Cut(r.URL, "#")
	for _, s := range load().pages[path].sections {
		if s.id == id {
			return strings.Contains(strings.ToLower(s.page.Title+" "+s.heading+" "+s.text), word)
		}
	}
	return false
}

// TestSearchPage checks that the query and the results are escaped.
func TestSearchPage(t *testing.T) {
	t.Parallel()
	const attack = `"><script>alert(1)</script>`
	body := ask(http.MethodGet, Root+"?q="+url.QueryEscape(attack), true).Body.String()
	if strings.Contains(body, "<script") || !strings.Contains(body, `value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"`) {
		t.Errorf("the page does not escape the query: %s", body)
	}
	body = ask(http.MethodGet, Root+"?q=tls-certificate", true).Body.String()
	if !strings.Contains(body, "<mark>") || !strings.Contains(body, `<a href="/docs/problems/tls-certificate#`) {
		t.Errorf("the page lacks a marked result: %s", body)
	}
	text := ask(http.MethodGet, Root+"?q=tls-certificate+what", false)
	if text.Header().Get("Content-Type") != typeText || !strings.Contains(text.Body.String(), "\n  /docs/problems/tls-certificate#") {
		t.Errorf("the text lacks a result: header %v, body %s", text.Header(), text.Body)
	}
}
