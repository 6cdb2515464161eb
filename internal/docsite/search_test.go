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
		t.Errorf("%q: %d results", query, len(found))
	}
	for _, r := range found {
		excerpt := r.Before + r.Match + r.After
		if !utf8.ValidString(excerpt) || len(excerpt) > excerptBefore+excerptAfter+maxQuery+2*len("… ") {
			t.Errorf("%q: %d bytes: %s", query, len(excerpt), excerpt)
		}
		path, _, _ := strings.Cut(r.URL, "#")
		if load().pages[path] == nil {
			t.Errorf("%q found %s", query, r.URL)
		}
	}
	return found
}

// TestSearch: sections have all words, those with the words in their heading come first.
func TestSearch(t *testing.T) {
	t.Parallel()
	for _, p := range load().order {
		found := search(t, p.Title)
		for word := range strings.FieldsSeq(strings.ToLower(p.Title)) {
			if len(found) == 0 || !strings.Contains(strings.ToLower(found[0].Heading), word) {
				t.Errorf("%q is the title of %s, and not found first: %+v", p.Title, p.URL, found)
				break
			}
		}
	}
	if found := search(t, "RoBoTs"); len(found) != maxResults {
		t.Errorf("robots: %d", len(found))
	}
	for _, query := range []string{"crawl-delay", "redis fleet", "User-Agent", "tls certificate"} {
		found := search(t, query)
		if len(found) == 0 {
			t.Errorf("%q: nothing", query)
		}
		for i, r := range found {
			if i > 0 && r.weight > found[i-1].weight {
				t.Errorf("%q: %s has more weight than the one before", query, r.URL)
			}
			for word := range strings.FieldsSeq(strings.ToLower(query)) {
				if !contains(r, word) {
					t.Errorf("%q: %s lacks %s", query, r.URL, word)
				}
			}
		}
	}
	for _, query := range []string{"xyzzy", "robots xyzzy", " ", strings.Repeat("x", 5000)} {
		if found := search(t, query); strings.TrimSpace(query) != "" && len(found) > 0 {
			t.Errorf("%.20q: %+v", query, found)
		}
	}
}

// contains reports whether a result's section has a word.
func contains(r result, word string) bool {
	path, id, _ := strings.Cut(r.URL, "#")
	for _, s := range load().pages[path].sections {
		if s.id == id {
			return strings.Contains(strings.ToLower(s.page.Title+" "+s.heading+" "+s.text), word)
		}
	}
	return false
}

// TestSearchPage checks that the query and the results are shown as text.
func TestSearchPage(t *testing.T) {
	t.Parallel()
	const attack = `"><script>alert(1)</script>`
	body := ask(http.MethodGet, Root+"?q="+url.QueryEscape(attack), true).Body.String()
	if strings.Contains(body, "<script") || !strings.Contains(body, `value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"`) {
		t.Errorf("%s", body)
	}
	body = ask(http.MethodGet, Root+"?q=tls-certificate", true).Body.String()
	if !strings.Contains(body, "<mark>") || !strings.Contains(body, `<a href="/docs/problems/tls-certificate#`) {
		t.Errorf("%s", body)
	}
	text := ask(http.MethodGet, Root+"?q=tls-certificate+what", false)
	if text.Header().Get("Content-Type") != typeText || !strings.Contains(text.Body.String(), "\n  /docs/problems/tls-certificate#") {
		t.Errorf("%v %s", text.Header(), text.Body)
	}
}
