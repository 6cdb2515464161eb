package robotstxt_test

import (
	"bytes"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// corpusHTML is the number of HTML pages among the 1,500 real files, counted by hand.
const corpusHTML = 132

// TestExt_IsHTML checks the heuristic against real files: no flagged file has a rule, and all pages
// of the corpus are found.
func TestExt_IsHTML(t *testing.T) {
	t.Parallel()
	flagged := 0
	for _, f := range corpus(t) {
		if !robotstxt.IsHTML(f.data) {
			continue
		}
		flagged++
		for _, line := range bytes.FieldsFunc(bytes.ToLower(f.data), func(r rune) bool { return r == '\n' || r == '\r' }) {
			line = bytes.TrimSpace(line)
			if bytes.HasPrefix(line, []byte("user-agent:")) || bytes.HasPrefix(line, []byte("disallow:")) {
				t.Errorf("%s is flagged but has the line %q", f.name, line)
			}
		}
	}
	if wholeCorpus() && flagged != corpusHTML {
		t.Errorf("%d files are flagged, want %d", flagged, corpusHTML)
	}
	for text, want := range map[string]bool{
		"<!DOCTYPE html><title>404</title>":                     true,
		"\xEF\xBB\xBF\r\n\t<HTML lang=en>":                      true,
		"<?xml version=\"1.0\"?>\n<!DOCTYPE html PUBLIC \"x\">": true,
		"<!-- served by a cache -->\n<html>":                    true,
		"":                                                      false,
		"<":                                                     false,
		"User-agent: *\nDisallow: /*<html\n":                    false,
		"# see <html> and <!doctype html>\nUser-agent: *\n":         false,
		"<!-- Allowed: site is public -->\nUser-agent: *\n":         false,
		"<?xml version=\"1.0\"?><rss></rss>":                        false,
		"<!--" + string(bytes.Repeat([]byte("x"), 1024)) + "<html>": false,
	} {
		if got := robotstxt.IsHTML([]byte(text)); got != want {
			t.Errorf("%.40q: %v, want %v", text, got, want)
		}
	}
}
