package docsite

import (
	"cmp"
	"slices"
	"strings"
)

// Bounds of a search: bytes of the question, and results.
const (
	maxQuery   = 100
	maxResults = 30
)

// section is a heading of a page, with the text up to the next one.
type section struct {
	page          *page
	id, heading   string
	text, lowered string
}

func newSection(p *page, id, heading, text string) section {
	lowered := strings.ToLower(text)
	if len(lowered) != len(text) {
		text = lowered // so that a place in one is the place in the other
	}
	return section{p, id, heading, text, lowered}
}

// result is a section that was found, with an excerpt of its text.
type result struct {
	URL, Title, Heading  string
	Before, Match, After string
	weight               int
}

// Name is the title of the page with the heading.
func (r result) Name() string {
	if r.Heading == r.Title {
		return r.Title
	}
	return r.Title + ": " + r.Heading
}

// search returns the sections that have all words of a question, which it cuts if it is too long. A
// word in a heading counts more than one in the title of the page, and that more than the text.
func (s *site) search(query string) (used string, found []result) {
	used = strings.ToValidUTF8(query[:min(len(query), maxQuery)], "")
	words := strings.Fields(strings.ToLower(used))
	for _, p := range s.order {
		title := strings.ToLower(p.Title)
		for _, sec := range p.sections {
			if weight := sec.weigh(words, title); weight > 0 {
				found = append(found, sec.result(words, weight))
			}
		}
	}
	slices.SortStableFunc(found, func(a, b result) int { return cmp.Compare(b.weight, a.weight) })
	return used, found[:min(len(found), maxResults)]
}

// weigh is 0 if a word is missing.
func (s section) weigh(words []string, title string) (weight int) {
	heading := strings.ToLower(s.heading)
	for _, word := range words {
		n := min(strings.Count(s.lowered, word), 9)
		if strings.Contains(heading, word) {
			n += 1000
		}
		if strings.Contains(title, word) {
			n += 100
		}
		if n == 0 {
			return 0
		}
		weight += n
	}
	return weight
}

// Bytes of an excerpt before and from the word on.
const (
	excerptBefore = 60
	excerptAfter  = 180
)

func (s section) result(words []string, weight int) result {
	r := result{URL: s.page.URL + "#" + s.id, Title: s.page.Title, Heading: s.heading, weight: weight}
	at, word := 0, ""
	for _, w := range words {
		if i := strings.Index(s.lowered, w); i >= 0 {
			at, word = i, w
			break
		}
	}
	from, to := max(at-excerptBefore, 0), min(at+excerptAfter, len(s.text))
	to = max(to, at+len(word))
	// A cut may go through a character.
	r.Before, r.Match = strings.ToValidUTF8(s.text[from:at], ""), s.text[at:at+len(word)]
	r.After = strings.ToValidUTF8(s.text[at+len(word):to], "")
	if from > 0 {
		r.Before = "… " + r.Before
	}
	if to < len(s.text) {
		r.After += " …"
	}
	return r
}
