package adminapi

import (
	"slices"
	"testing"
)

func TestNearNames(t *testing.T) {
	t.Parallel()
	names := []string{"AcmeBot", "AcmeNews", "Crawler-2", "X"}
	for name, want := range map[string][]string{
		"acmebto":   {"AcmeBot"},
		"AcmeBots":  {"AcmeBot"},
		"acme":      {"AcmeBot", "AcmeNews"},
		"crawler2":  {"Crawler-2"},
		"Crawler-3": {"Crawler-2"},
		"Googlebot": nil,
		"y":         nil,
		"Acmeotb":   {"AcmeBot"},
	} {
		if got := NearNames(names, name); !slices.Equal(got, want) {
			t.Errorf("near %q: %q, want %q", name, got, want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := edits(tt.a, tt.b); got != tt.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
