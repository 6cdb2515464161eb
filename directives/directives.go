// Package directives reads the X-Robots-Tag field and the robots meta tag: what a page asks of the
// crawlers that index, archive or train on it. No RFC defines the two. The sources are seed 003
// ("Controlling Indexing and Serving") and, for directives that are younger than it, Google's page
// of the robots meta tag and MDN's page of X-Robots-Tag.
//
// A directive never forbids a fetch. It is a duty of the crawler, so the package says what was
// said, and leaves to others what follows from it.
//
// Everything here is a function of its arguments: no clock, no state, no locks. Names are compared
// without case (seed 003: "These directives are not case-sensitive").
package directives

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// maxUnknown is how many unknown directives a Set keeps.
	maxUnknown = 16
	// maxUnknownLen is how many octets of one unknown directive are kept.
	maxUnknownLen = 64
)

// Flags are directives that have no value, one bit each.
type Flags uint16

// The directives without a value. There is none for "all", "index" and the other positive words:
// they are the default and have no effect (seed 003). "none" is NoIndex and NoFollow.
const (
	NoIndex Flags = 1 << iota
	NoFollow
	NoArchive
	NoSnippet
	NoImageIndex
	NoTranslate
	NoODP
	// IndexIfEmbedded allows what NoIndex forbids, for a page inside a frame of another one. It
	// is reported as it was said, beside NoIndex; the strictest reading ignores it.
	IndexIfEmbedded
	// NoAI and NoImageAI are DeviantArt's convention against training.
	NoAI
	NoImageAI
)

// flagNames are the directives without a value in the order of Names.
var flagNames = [...]string{
	"noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate", "noodp",
	"indexifembedded", "noai", "noimageai",
}

// Limit is the value of max-snippet (characters) or max-video-preview (seconds). The zero value
// means that the directive was not there.
type Limit struct {
	Said bool
	N    int // -1 is no limit, 0 is nothing at all
}

// Set is what a page says to one crawler. The zero value says nothing. Sets of Header, Meta and
// Join are in a normal form, which the laws of Join need. A Set is a value: it must not be changed
// while others read it, and Unknown may be shared.
type Set struct {
	Flags Flags
	// UnavailableAfter is the date of unavailable_after, in UTC; the zero time is none.
	UnavailableAfter time.Time
	// UnreadableDate says that there was an unavailable_after with a date that could not be read.
	// It is among Unknown then.
	UnreadableDate bool
	MaxSnippet     Limit
	MaxVideo       Limit
	// MaxImage is the value of max-image-preview: "none", "standard", "large", or "" without it.
	MaxImage string
	// Unknown are directives that the package does not know, as they were written, cut at 64 octets,
	// sorted, each once: the first 16.
	Unknown []string
	// Cut says that a bound was reached, so that more may have been said.
	Cut bool
}

// Has reports whether all of directives were said.
func (s Set) Has(flags Flags) bool { return s.Flags&flags == flags }

// Empty reports whether nothing was said that could have an effect, and nothing was left out.
func (s Set) Empty() bool {
	return s.Flags == 0 && s.UnavailableAfter.IsZero() && !s.UnreadableDate && !s.MaxSnippet.Said &&
		!s.MaxVideo.Said && s.MaxImage == "" && len(s.Unknown) == 0 && !s.Cut
}

// Past reports whether the date of unavailable_after is over. A date that could not be read is
// never over.
func (s Set) Past(now time.Time) bool {
	return !s.UnavailableAfter.IsZero() && now.After(s.UnavailableAfter)
}

// Join returns what two places of one page say together: the sum of the negatives (seed 003), and
// of each value the strictest. So the smaller limit counts, the earlier date, and "none" before
// "standard" before "large". Join is commutative, associative and idempotent.
func (s Set) Join(o Set) Set {
	s.Flags |= o.Flags
	s.say(o.UnavailableAfter)
	s.UnreadableDate = s.UnreadableDate || o.UnreadableDate
	s.MaxSnippet = s.MaxSnippet.join(o.MaxSnippet)
	s.MaxVideo = s.MaxVideo.join(o.MaxVideo)
	s.MaxImage = smallerPreview(s.MaxImage, o.MaxImage)
	s.Cut = s.Cut || o.Cut
	if len(s.Unknown) == 0 {
		s.Unknown = o.Unknown
		return s
	}
	s.Unknown = slices.Clone(s.Unknown)
	for _, text := range o.Unknown {
		s.keep(text)
	}
	return s
}

// Names returns the directives that are known, by their canonical names in a fixed order, with
// their values: "noindex", "unavailable_after=2010-06-25T23:00:00Z", "max-snippet=50".
func (s Set) Names() []string {
	var names []string
	for i, name := range flagNames {
		if s.Flags&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if !s.UnavailableAfter.IsZero() {
		names = append(names, "unavailable_after="+s.UnavailableAfter.Format(time.RFC3339))
	}
	if s.MaxSnippet.Said {
		names = append(names, "max-snippet="+strconv.Itoa(s.MaxSnippet.N))
	}
	if s.MaxImage != "" {
		names = append(names, "max-image-preview="+s.MaxImage)
	}
	if s.MaxVideo.Said {
		names = append(names, "max-video-preview="+strconv.Itoa(s.MaxVideo.N))
	}
	return names
}

// say adds a date; the zero time adds nothing.
func (s *Set) say(date time.Time) {
	if s.UnavailableAfter.IsZero() || !date.IsZero() && date.Before(s.UnavailableAfter) {
		s.UnavailableAfter = date
	}
}

// keep adds an unknown directive. Of more than maxUnknown the first by their octets stay, so that
// the order in which they come does not matter.
func (s *Set) keep(text string) {
	if len(text) > maxUnknownLen {
		n := maxUnknownLen
		for n > maxUnknownLen-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	i, found := slices.BinarySearch(s.Unknown, text)
	if found {
		return
	}
	if len(s.Unknown) == maxUnknown {
		s.Cut = true
		if i == maxUnknown {
			return
		}
		s.Unknown = s.Unknown[:maxUnknown-1]
	}
	s.Unknown = slices.Insert(s.Unknown, i, text)
}

func (l Limit) join(o Limit) Limit {
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

// lowerCase writes s in lower case into buf, as far as it is ASCII. It returns nil if s is longer.
func lowerCase(buf []byte, s string) []byte {
	if len(s) > len(buf) {
		return nil
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	return buf[:len(s)]
}

// trim removes white space of HTTP and HTML from both ends. With strings.Trim instead, Header takes
// a fifth more time.
func trim(s string) string {
	for s != "" && isSpace(s[0]) {
		s = s[1:]
	}
	for s != "" && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' }
