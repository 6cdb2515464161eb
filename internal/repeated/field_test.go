package repeated

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestField checks that a repeated field is found at any depth, in any case and spelling of its name.
func TestField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                               "",
		`7`:                                "",
		`"a"`:                              "",
		`{"a":1,"b":1e999}`:                "",
		`[{"a":1},{"a":1}]`:                "",
		`{"a":{"a":{"a":"a"}},"b":1}`:      "",
		`{"a":1,"b":2,"a":1}`:              `field "a" is given twice`,
		`{"a":null,"a":1}`:                 `field "a" is given twice`,
		`{"":1,"":1}`:                      `field "" is given twice`,
		`{"a":1,"A":2}`:                    `field "A" is given twice`,
		`{"a":1,"\u0041":2}`:               `field "A" is given twice`,
		`{"kid":1,"` + "\u212a" + `id":2}`: "field \"\u212aid\" is given twice", // the sign of Kelvin
		`{"x":[1,{"b":{},"B":[]}]}`:        `field "B" is given twice`,
		`{"a":`:                            "EOF",
	} {
		if err := Field([]byte(text)); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzField: if no field is repeated, no two names differ in case only, as package strings sees it.
func FuzzField(f *testing.F) {
	f.Add(`{"a":1,"b":2}`)
	f.Add(`{"a":1,"A":2}`)
	f.Fuzz(func(t *testing.T, text string) {
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &fields) != nil || Field([]byte(text)) != nil {
			return
		}
		for name := range fields {
			for other := range fields {
				if name != other && strings.EqualFold(name, other) {
					t.Errorf("%q: %q is %q", text, name, other)
				}
			}
		}
	})
}
