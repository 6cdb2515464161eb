package enforce

import (
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/escape"
)

func TestGlobMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"AcmeBot/*", "AcmeBot/1.0", true},
		{"acmebot/*", "ACMEBOT/", true},
		{"AcmeBot/*", "xAcmeBot/1.0", false},
		{"*bot", "mybot", true},
		{"*bot", "bot/1", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a**a", "aba", true},
		{"*", "", true},
		{"Bot 1.0 (x)", "bot 1.0 (X)", true},
		{"Bot 1.0 (x)", "bot 1.0 (x) ", false},
		{"Mozilla/5.0 (compatible; Acme*", "Mozilla/5.0 (compatible; AcmeBot/1.0)", true},
	} {
		if got := newGlob(tt.pattern).match(strings.ToLower(tt.s)); got != tt.want {
			t.Errorf("match(%q, %q) = %t, want %t", tt.pattern, tt.s, got, tt.want)
		}
	}
}

// FuzzGlob checks globs against regular expressions, and an intersection against both globs.
func FuzzGlob(f *testing.F) {
	f.Add("AcmeBot/*", "*Bot*", "AcmeBot/1.0")
	f.Add("*a*b*", "*b*a*", "ab")
	f.Add("a*a", "a", "aa")
	f.Add("*", "**", "")
	f.Fuzz(func(t *testing.T, p, q, s string) {
		if len(p)+len(q)+len(s) > 200 {
			return
		}
		g, h := newGlob(p), newGlob(q)
		for _, x := range []glob{g, h} {
			if escape.ASCII(string(x)+s, 1000) != string(x)+s {
				continue // an expression matches characters, a glob bytes
			}
			re := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(string(x)), `\*`, `.*`) + `$`)
			if got, want := x.match(strings.ToLower(s)), re.MatchString(strings.ToLower(s)); got != want {
				t.Errorf("match(%q, %q) = %t, but the regular expression has %t", x, s, got, want)
			}
		}
		witness, ok := intersection{}.of(g, h)
		if ok && (!g.match(witness) || !h.match(witness)) {
			t.Errorf("%q and %q: witness %q does not match both", g, h, witness)
		}
		if !ok && g.match(strings.ToLower(s)) && h.match(strings.ToLower(s)) {
			t.Errorf("%q and %q: reported as disjoint, but both match %q", g, h, s)
		}
	})
}

func TestGlobIntersect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p, q string
		want bool
	}{
		{"AcmeNews/*", "AcmeImages/*", false},
		{"*news*", "*images*", true},
		{"a*", "*b", true},
		{"a*c", "ab", false},
		{"x", "x", true},
		{"*x", "*y", false},
		{"*", "anything at all", true},
	} {
		if witness, got := (intersection{}).of(newGlob(tt.p), newGlob(tt.q)); got != tt.want {
			t.Errorf("%q and %q: intersection %t (%q), want %t", tt.p, tt.q, got, witness, tt.want)
		}
	}
	// The worst pair of the permitted length ends in time, because no pair of positions is tried
	// twice.
	long := strings.Repeat("*a", maxPattern/2)
	if _, ok := (intersection{}).of(newGlob(long+"b"), newGlob(long+"c")); ok {
		t.Error("globs with different ends intersect")
	}
}
