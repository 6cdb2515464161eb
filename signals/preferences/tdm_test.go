package preferences_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/signals/preferences"
)

// TestTDMApply checks that only the first matching rule applies to a target (TDMRep, "TDM File on
// the Origin Server"), and that the texts of these rules are a file with the same result for the
// targets.
func TestTDMApply(t *testing.T) {
	t.Parallel()
	rules, err := preferences.ParseTDMFile([]byte(`[
		{"location": "/a", "tdm-reservation": 0, "other": [1]},
		{"location": "/b&c*", "tdm-reservation": 1, "tdm-policy": "https://example.com/?a=1&b=2"},
		{"location": "/", "tdm-reservation": 1}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		targets []string
		texts   string
		want    string
	}{
		{nil, "", ""},
		{[]string{"/a/x"}, `{"location":"/a","tdm-reservation":0}`, "tdm=y;from=tdmrep"},
		{
			[]string{"/b&c"},
			`{"location":"/b&c*","tdm-reservation":1,"tdm-policy":"https://example.com/?a=1&b=2"}`,
			"train-ai=n;from=tdmrep, tdm=n;from=tdmrep",
		},
		{
			[]string{"/a/../x", "/x"},
			`{"location":"/a","tdm-reservation":0},{"location":"/","tdm-reservation":1}`,
			"train-ai=n;from=tdmrep, tdm=n;from=tdmrep",
		},
	} {
		given := slices.Clone(c.targets)
		applied := rules.Apply(c.targets...)
		if !slices.Equal(given, c.targets) {
			t.Errorf("Apply changes its targets from %q to %q", given, c.targets)
		}
		texts := strings.Join(applied.Texts(), ",")
		if got := text(applied.Set()); texts != c.texts || got != c.want {
			t.Errorf("Apply(%q) = %s, %s", c.targets, texts, got)
		}
		again, err := preferences.ParseTDMFile([]byte("[" + texts + "]"))
		if got := text(again.Apply(c.targets...).Set()); err != nil || got != c.want {
			t.Errorf("Apply(%q) from the texts = %s, %v", c.targets, got, err)
		}
	}
}

// TestTDMReserving checks that for a tunnel the first rule that reserves rights counts, wherever it
// is.
func TestTDMReserving(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		`[]`: "",
		`[{"location":"/","tdm-reservation":0},{"location":"/a","tdm-reservation":"1"}]`:                                     "",
		`[{"location":"/","tdm-reservation":1.0}]`:                                                                           `{"location":"/","tdm-reservation":1.0}`,
		`[{"location":"/","tdm-reservation":0},{"location":"/a","tdm-reservation":1},{"location":"/b","tdm-reservation":1}]`: `{"location":"/a","tdm-reservation":1}`,
	} {
		rules, err := preferences.ParseTDMFile([]byte(file))
		if got := strings.Join(rules.Reserving().Texts(), ","); err != nil || got != want {
			t.Errorf("Reserving of %s = %s, %v", file, got, err)
		}
	}
}
