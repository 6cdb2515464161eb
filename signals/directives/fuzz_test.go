package directives

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzHeader reads three lines for an agent. The result must be limited in size, must not depend on
// the order of the lines, and must be the Join of the lines' results; and Join must obey its laws.
func FuzzHeader(f *testing.F) {
	for _, seed := range [][3]string{
		{"noindex, nofollow", "googlebot: noarchive, max-snippet: 5", "otherbot: none"},
		{"unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noindex", "unavailable_after: 2010-06-25T15:00:00+02:00", "unavailable_after: soon"},
		{"max-image-preview: large", "max-image-preview: none", "max-snippet: -1, max-video-preview: 0"},
		{"noindex nofollow", "all: noindex", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r"},
		{",,:,: ,*:,robots:", "googlebot/1.0: x", "unavailable_after: Fri, 25 Jun 99 15:00 CET, x: y"},
		{strings.Repeat("x,", 3000), "\xff\xfe", strings.Repeat("é", 80)},
	} {
		f.Add(seed[0], seed[1], seed[2], "googlebot")
	}
	f.Fuzz(func(t *testing.T, a, b, c, token string) {
		tokens := []string{token}
		all := Header([]string{a, b, c}, tokens)
		bounded(t, all)
		if other := Header([]string{c, a, b}, tokens); !reflect.DeepEqual(all, other) {
			t.Errorf("the order of lines changes the result: %+v, %+v", all, other)
		}
		x, y, z := Header([]string{a}, tokens), Header([]string{b}, tokens), Header([]string{c}, tokens)
		if sum := x.Join(y).Join(z); !reflect.DeepEqual(all, sum) {
			t.Errorf("lines read together give %+v, joined %+v", all, sum)
		}
		laws(t, x, y, z)
		bounded(t, Meta([]Named{{token, a}, {"robots", b}, {c, c}}, tokens))
	})
}

// laws checks that Join is commutative, associative and idempotent, has the zero value as its
// neutral element, and never loses a directive.
func laws(t *testing.T, x, y, z Set) {
	t.Helper()
	same := func(law string, a, b Set) {
		t.Helper()
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %+v, %+v", law, a, b)
		}
	}
	same("commutative", x.Join(y), y.Join(x))
	same("associative", x.Join(y).Join(z), x.Join(y.Join(z)))
	same("idempotent", x.Join(x), x)
	same("neutral", x.Join(Set{}), x)
	same("absorbing", x.Join(y).Join(x), x.Join(y))
	if s := x.Join(y); s.Flags != x.Flags|y.Flags || s.Empty() != (x.Empty() && y.Empty()) {
		t.Errorf("joining %+v and %+v loses flags: %+v", x, y, s)
	}
}

func bounded(t *testing.T, s Set) {
	t.Helper()
	for _, l := range []Maximum{s.MaxSnippet, s.MaxVideo} {
		if l.N < -1 || !l.Said && l.N != 0 {
			t.Errorf("invalid limit %+v", l)
		}
	}
	if !s.UnavailableAfter.IsZero() && (s.UnavailableAfter.Year() < 1899 || s.UnavailableAfter.Year() > 9999) {
		t.Errorf("unavailable_after has the year of %v", s.UnavailableAfter)
	}
}
