package testdocs

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

func TestInJSON(t *testing.T) {
	t.Parallel()
	names := map[string]string{"Min": "min", "Max": "max_size"}
	for comment, want := range map[string]string{
		"Max is the longest of [Config.Min].":     "The longest of `min`.",
		"Max says what a longer one means.":       "What a longer one means.",
		"Max says that it is long.":               "It is long.",
		"Max lists them, see [Other] and [x.Min]": "Lists them, see Other and `min`",
		"The longest.":                            "The longest.",
		"Max is as in docs/audit.md#gaps.":        "As in [audit.md](audit.md#gaps).",
	} {
		if got := inJSON(comment, "Max", names); got != want {
			t.Errorf("%q became %q, want %q", comment, got, want)
		}
	}
}

func TestCutSentence(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"127.0.0.1. More.": {"127.0.0.1", "More."},
		"none.":            {"none", ""},
		"none":             {"none", ""},
	} {
		if first, rest := cutSentence(text); first != want[0] || rest != want[1] {
			t.Errorf("cutSentence(%q) = %q, %q", text, first, rest)
		}
	}
}

func TestTypeName(t *testing.T) {
	t.Parallel()
	for typ, want := range map[reflect.Type]string{
		reflect.TypeFor[*time.Duration]():  "duration",
		reflect.TypeFor[[]string]():        "list of texts",
		reflect.TypeFor[json.RawMessage](): "object",
		reflect.TypeFor[map[string]int]():  "object",
		reflect.TypeFor[time.Time]():       "time",
		reflect.TypeFor[*float64]():        "number",
		reflect.TypeFor[bool]():            "true/false",
		reflect.TypeFor[netip.Addr]():      "text",
	} {
		if got := TypeName(typ); got != want {
			t.Errorf("%s is %q, want %q", typ, got, want)
		}
	}
}
