package escape

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s             string
		limit         int
		want, inASCII string
	}{
		{"", 10, "", ""},
		{"plain", 10, "plain", "plain"},
		{"plain", 5, "plain", "plain"},
		{"plainer", 6, "pla...", "pla..."},
		{"café", 20, "café", `caf\xc3\xa9`},
		{"a\tb\r\n", 20, `a\x09b\x0d\x0a`, `a\x09b\x0d\x0a`},
		{"a\xffb", 20, `a\xffb`, `a\xffb`},
		{"\u202eabc", 20, `\xe2\x80\xaeabc`, `\xe2\x80\xaeabc`},
		{"\u0085\u200b\ufeff", 40, `\xc2\x85\xe2\x80\x8b\xef\xbb\xbf`, `\xc2\x85\xe2\x80\x8b\xef\xbb\xbf`},
		{"a\x00\x00\x00", 9, `a\x00...`, `a\x00...`},
		{"éééééé", 9, "ééé...", "..."},
	} {
		if got := Printable(tt.s, tt.limit); got != tt.want {
			t.Errorf("Printable(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
		if got := ASCII(tt.s, tt.limit); got != tt.inASCII {
			t.Errorf("ASCII(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.inASCII)
		}
	}
}

// TestVisible checks that when the text of a site is shown, only ASCII characters look like ASCII.
func TestVisible(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"Disallow: /":                           "Disallow: /",
		"Dis\u2011allow: /":                     `Dis\xe2\x80\x91allow: /`,
		"Disallow\uff1a /":                      `Disallow\xef\xbc\x9a /`,
		"Disallow\uff1a\uff0f":                  `Disallow\xef\xbc\x9a\xef\xbc\x8f`,
		"D\u0456sallow: /":                      `D\xd1\x96sallow: /`,
		"\u0391llow: /":                         `\xce\x91llow: /`,
		"\uff21llow: /":                         `\xef\xbc\xa1llow: /`,
		"D\u0131sallow: /":                      `D\xc4\xb1sallow: /`,
		"Disa\u0307llow: /":                     `Disa\xcc\x87llow: /`,
		"Disallow:\u00a0/":                      `Disallow:\xc2\xa0/`,
		"\ufeffAllow: /\u202e":                  `\xef\xbb\xbfAllow: /\xe2\x80\xae`,
		"# caf\u00e9 Gr\u00f6\u00dfe \u017eena": "# caf\u00e9 Gr\u00f6\u00dfe \u017eena",
		"# \u0437\u0430\u043f\u0440\u0435\u0442, \u0432\u0441\u0435\u043c": "# \u0437\u0430\u043f\u0440\u0435\u0442, \u0432\u0441\u0435\u043c",
		"# \u767e\u5ea6Baiduspider\u8718\u86db \u2013 \u3002":              "# \u767e\u5ea6Baiduspider\u8718\u86db \u2013 \u3002",
	} {
		if got := Unprintable(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
		if got := Unprintable(want); got != want {
			t.Errorf("Unprintable(%q) = %q, want it unchanged", want, got)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abc..."}, {"ééé", 5, "é..."}, {"ééé", 4, "..."}, {"abcd", 3, "..."},
	} {
		if got := Cut(tt.s, tt.limit); got != tt.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}

// FuzzSanitize checks that the result is limited in length, printable, and has everything that
// fits.
func FuzzSanitize(f *testing.F) {
	f.Add("plain text", uint16(20))
	f.Add("\x00\xff\u202e", uint16(4))
	f.Add("ééé\r\n", uint16(9))
	f.Fuzz(func(t *testing.T, s string, n uint16) {
		limit := max(int(n)%600, len(Ellipsis))
		p, a := Printable(s, limit), ASCII(s, limit)
		for _, out := range []string{p, a} {
			if len(out) > limit || !utf8.ValidString(out) {
				t.Errorf("%q: %q has %d bytes or is not UTF-8, limit %d", s, out, len(out), limit)
			}
			if i := strings.IndexFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q: %q is not printable at %d", s, out, i)
			}
			if again := Printable(out, limit); again != out {
				t.Errorf("%q: a second pass changes %q to %q", s, out, again)
			}
		}
		if i := strings.IndexFunc(a, func(r rune) bool { return r > '~' }); i >= 0 {
			t.Errorf("%q: %q is not ASCII at %d", s, a, i)
		}
		if len(s) <= limit && ASCII(s, 4*len(s)+1) == s && a != s {
			t.Errorf("%q is changed to %q without need", s, a)
		}
	})
}
