package cli

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/evidence/verify"
)

// fill sets each number of a value to a different one of five digits, each list to one element and
// each map to two, and returns how many numbers it set.
func fill(v reflect.Value, last *int64) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		*last++
		v.SetInt(*last)
	case reflect.String:
		*last++
		v.SetString("name" + strconv.FormatInt(*last, 10))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), last)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		keys := []string{"one", "two"}
		switch v.Type().Key() {
		case reflect.TypeFor[audit.Unprovable]():
			keys = []string{string(audit.CauseQuery), string(audit.CauseURL)}
		case reflect.TypeFor[audit.Kind]():
			keys = []string{string(audit.KindGap), string(audit.KindText)}
		}
		for _, key := range keys {
			element := reflect.New(v.Type().Elem()).Elem()
			fill(element, last)
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), element)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, last)
			}
		}
	default: // a flag
	}
}

// numbers returns the numbers of a JSON value, without line numbers.
func numbers(v any, path string, found map[string]string) {
	switch v := v.(type) {
	case json.Number:
		found[path] = v.String()
	case map[string]any:
		for key, value := range v {
			numbers(value, path+"."+key, found)
		}
	case []any:
		for _, value := range v {
			numbers(value, path, found)
		}
	}
}

// TestTextHasAllNumbers checks that the text output has each number of --json.
func TestTextHasAllNumbers(t *testing.T) {
	t.Parallel()
	last := int64(10000)
	totals := audit.Totals{Seals: new(verify.Totals)}
	fill(reflect.ValueOf(&totals).Elem(), &last)
	fill(reflect.ValueOf(totals.Seals).Elem(), &last)
	text, err := json.Marshal(totals)
	if err != nil {
		t.Fatal(err)
	}
	found, decoder := map[string]string{}, json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var all any
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	numbers(all, "", found)
	var out strings.Builder
	printSections(&out, auditSummary(totals), auditSeals(totals), auditAgents(totals), auditTexts(totals))
	shown := map[string]bool{}
	for word := range strings.FieldsSeq(strings.NewReplacer(":", " ", ",", " ").Replace(out.String())) {
		shown[word] = true
	}
	for path, n := range found {
		if !shown[n] {
			t.Errorf("the text lacks %s = %s:\n%s", path, n, &out)
		}
	}
	if len(found) < 49 {
		t.Errorf("found %d numbers, want at least 49", len(found))
	}
}
