//go:build slow

package robots

import (
	"fmt"
	"slices"
	"strings"
)

// pagesFor makes n pages from the rules of a robots.txt: pages that match, pages that nearly match,
// the same in other spellings, and some pages that have nothing to do with any rule.
func pagesFor(robots []byte, n int) []string {
	pages := []string{"/news/today.html", "/search?q=robots&page=2", "/caf%C3%A9/men%C3%BC", "/a%2Fb", "/~user/", "/index.html"}
	var variants []string
	for line := range strings.Lines(string(robots)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "allow", "disallow":
			variants = append(variants, variantsOf(strings.TrimSpace(value))...)
		}
	}
	// Take pages at regular steps, so that all rules and all kinds of variants occur.
	step := max(1, len(variants)/(n-len(pages)))
	for step%variantKinds == 0 {
		step--
	}
	for i := 0; i < len(variants) && len(pages) < n; i += step {
		// curl drops an empty query; TestWire has one.
		if !slices.Contains(pages, variants[i]) && !strings.HasSuffix(variants[i], "?") {
			pages = append(pages, variants[i])
		}
	}
	return pages
}

// variantKinds is the number of pages that variantsOf makes.
const variantKinds = 8

// variantsOf makes pages from the path of one rule.
func variantsOf(rule string) []string {
	path := "/" + strings.TrimPrefix(uriBytes(strings.ReplaceAll(strings.TrimSuffix(rule, "$"), "*", "any")), "/")
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	return []string{
		path,
		path + "below/page.html",
		"/" + path[1:max(1, len(path)-1)],    // one byte short
		path + mark + "from=crawl",           // with a query
		"/en" + path,                         // elsewhere
		path[:1] + strings.ToUpper(path[1:]), // in capitals
		escapeFirst(path, isLetter),          // the same page, by RFC 9309 section 2.2.2
		escapeFirst(path, isInnerSlash),      // another page
	}
}

// escapeFirst escapes the first byte after the leading slash that choose selects.
func escapeFirst(path string, choose func(path string, i int) bool) string {
	for i := 1; i < len(path); i++ {
		if choose(path, i) {
			return fmt.Sprintf("%s%%%02X%s", path[:i], path[i], path[i+1:])
		}
	}
	return path
}

func isLetter(path string, i int) bool {
	return (path[i]|0x20) >= 'a' && (path[i]|0x20) <= 'z' && !strings.Contains(path[max(0, i-2):i], "%")
}

func isInnerSlash(path string, i int) bool { return path[i] == '/' && i < len(path)-1 }

// uriBytes escapes bytes that a URI cannot contain (RFC 3986 section 2), and brackets, which
// clients treat differently.
func uriBytes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"#<>[]\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
