package pagestyle

import (
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestContrast checks every pair of colours that meet on a page against WCAG 2.2 AA, in both
// schemes.
func TestContrast(t *testing.T) {
	t.Parallel()
	light, dark, _ := strings.Cut(CSS, "@media (prefers-color-scheme: dark)")
	dark, _, _ = strings.Cut(dark, "@media")
	for scheme, colours := range map[string]map[string]string{"light": properties(light), "dark": properties(dark)} {
		for on, pair := range map[string]struct {
			least float64
			inks  string
		}{
			"page": {4.5, "ink muted accent ok warn bad off"}, "card": {4.5, "ink muted accent ok warn bad off"},
			"sunk": {4.5, "ink muted accent ok warn bad"}, "ok-in": {4.5, "ok"}, "warn-in": {4.5, "warn"},
			"bad-in": {4.5, "bad"}, "off-in": {4.5, "off ink"}, "mark": {4.5, "on-mark"}, "accent": {4.5, "on-accent"},
			"del": {4.5, "ink"}, "ins": {4.5, "ink"},
		} {
			for ink := range strings.FieldsSeq(pair.inks) {
				if got := contrast(t, colours[ink], colours[on]); got < pair.least {
					t.Errorf("%s: %s on %s: %.2f, want %.1f", scheme, ink, on, got, pair.least)
				}
			}
		}
		for _, on := range []string{"page", "card"} { // the border of a field
			if got := contrast(t, colours["edge"], colours[on]); got < 3 {
				t.Errorf("%s: edge on %s: %.2f, want 3", scheme, on, got)
			}
		}
	}
}

// properties returns the colours of a part of the style sheet.
func properties(css string) map[string]string {
	all := make(map[string]string)
	for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// contrast returns the contrast of two colours according to WCAG.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	if len(colour) != 7 {
		t.Fatalf("not a colour: %q", colour)
	}
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// TestSheet checks that a page with the style sheet loads nothing else, and that its policy permits
// this sheet.
func TestSheet(t *testing.T) {
	t.Parallel()
	for _, asks := range []string{"url(", "@import", "</", "{{", "/*"} {
		if strings.Contains(CSS, asks) {
			t.Errorf("the style sheet has %q", asks)
		}
	}
	if len(CSS) > 9<<10 {
		t.Errorf("%d bytes, want 9 KiB at most: every refusal in HTML has them", len(CSS))
	}
	if strings.Count(CSS, "{") != strings.Count(CSS, "}") {
		t.Error("the braces of the style sheet do not match")
	}
	var b strings.Builder
	if err := template.Must(template.New("").Parse(`<head>`+Head+`</head>`)).Execute(&b, nil); err != nil {
		t.Fatal(err)
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(b.String())
	if style == nil || !strings.Contains(Policy, "style-src "+Source(style[1])+";") {
		t.Errorf("a template renders another style than %s allows", Policy)
	}
	for _, used := range regexp.MustCompile(`var\((--[a-z-]+)\)`).FindAllStringSubmatch(CSS, -1) {
		if !strings.Contains(CSS, used[1]+":") {
			t.Errorf("%s is not defined", used[1])
		}
	}
}
