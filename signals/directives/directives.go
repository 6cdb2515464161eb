package directives

import (
	"fmt"
	"strings"
	"time"
)

// Flags are directives that have no value, one bit each.
type Flags uint16

// The directives without a value. "all", "index" and the other positive words have no constant:
// they are the default and have no effect (Google's guide of 2012). "none" is NoIndex and NoFollow.
const (
	NoIndex Flags = 1 << iota
	NoFollow
	NoArchive
	NoSnippet
	NoImageIndex
	NoTranslate
	NoODP
	// IndexIfEmbedded allows indexing despite NoIndex, for a page inside a frame of another one. It is
	// reported in addition to NoIndex; the strictest reading ignores it.
	IndexIfEmbedded
	// NoAI and NoImageAI are DeviantArt's convention against training.
	NoAI
	NoImageAI
	// NoCache is Bing's: no cached copy, and of the page only its address, title and snippet for
	// answers and training.
	NoCache
)

// flagNames are the directives without a value in the order of Names.
var flagNames = [...]string{
	"noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate", "noodp",
	"indexifembedded", "noai", "noimageai", "nocache",
}

// Maximum is the value of max-snippet (characters) or max-video-preview (seconds). The zero value
// means that the directive is missing.
type Maximum struct {
	Said bool
	N    int // -1 means no limit, 0 means nothing
}

// Set is what a page says to one crawler. The zero value says nothing. Sets from Header, Meta and
// Join are in a normal form, which the laws of Join require.
type Set struct {
	Flags Flags
	// UnavailableAfter is the date of unavailable_after, in UTC; zero without one.
	UnavailableAfter time.Time
	MaxSnippet       Maximum
	MaxVideo         Maximum
	// MaxImage is the value of max-image-preview: "none", "standard", "large", or "" without it.
	MaxImage string
	// Cut says that a bound was reached, so there may be more directives.
	Cut bool
}

// Empty reports whether the set has no directive with an effect, and nothing was left out.
func (s Set) Empty() bool { return s == Set{} }

// Join adds the directives of two places of one page: the sum of the negatives (Google's guide of
// 2012), and the strictest of each value. So the smaller limit counts, and the earlier date, and
// "none" is stricter than "standard", which is stricter than "large". Join is commutative,
// associative and idempotent.
func (s Set) Join(o Set) Set {
	s.Flags |= o.Flags
	s.say(o.UnavailableAfter)
	s.MaxSnippet = s.MaxSnippet.join(o.MaxSnippet)
	s.MaxVideo = s.MaxVideo.join(o.MaxVideo)
	s.MaxImage = smallerPreview(s.MaxImage, o.MaxImage)
	s.Cut = s.Cut || o.Cut
	return s
}

// Directive is a directive by its canonical name, such as "noindex" or "unavailable_after". Value
// is nil for a directive without one, or an int, a time.Time or a word.
type Directive struct {
	Name  string
	Value any
}

// Directives returns the known directives, in a fixed order.
func (s Set) Directives() []Directive {
	var all []Directive
	add := func(said bool, name string, value any) {
		if said {
			all = append(all, Directive{name, value})
		}
	}
	for i, name := range flagNames {
		add(s.Flags&(1<<i) != 0, name, nil)
	}
	add(!s.UnavailableAfter.IsZero(), "unavailable_after", s.UnavailableAfter)
	add(s.MaxSnippet.Said, "max-snippet", s.MaxSnippet.N)
	add(s.MaxImage != "", "max-image-preview", s.MaxImage)
	add(s.MaxVideo.Said, "max-video-preview", s.MaxVideo.N)
	return all
}

// Names returns the directives with their values as text: "noindex",
// "unavailable_after=2010-06-25T23:00:00Z", "max-snippet=50".
func (s Set) Names() []string {
	var names []string
	for _, d := range s.Directives() {
		switch value := d.Value.(type) {
		case nil:
			names = append(names, d.Name)
		case time.Time:
			names = append(names, d.Name+"="+value.Format(time.RFC3339))
		default:
			names = append(names, fmt.Sprint(d.Name, "=", value))
		}
	}
	return names
}

// say adds a date; the zero time adds nothing.
func (s *Set) say(date time.Time) {
	if s.UnavailableAfter.IsZero() || !date.IsZero() && date.Before(s.UnavailableAfter) {
		s.UnavailableAfter = date
	}
}

func (l Maximum) join(o Maximum) Maximum {
	if !l.Said || o.Said && o.N >= 0 && (l.N < 0 || o.N < l.N) {
		return o
	}
	return l
}

// smallerPreview returns the stricter of two values of max-image-preview.
func smallerPreview(a, b string) string {
	for _, size := range [...]string{"none", "standard", "large"} {
		if a == size || b == size {
			return size
		}
	}
	return ""
}

// trim removes white space of HTTP and HTML from both ends.
func trim(s string) string { return strings.Trim(s, " \t\r\n\f") }
