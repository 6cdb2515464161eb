package proxy

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestEveryEgressKindIsAReason checks that each kind of failure of package egress has a reason.
func TestEveryEgressKindIsAReason(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../egress/classify.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\tKind\w+\s+Kind = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(kinds) < 20 {
		t.Errorf("found %d kinds, want at least 20", len(kinds))
	}
	for _, k := range append(kinds, []string{"", ""}) {
		if r := reasonOf(&egress.Error{Kind: egress.Kind(k[1])}); !r.Valid() || r.Allows() {
			t.Errorf("%s becomes the reason %q, want a failure", k, r)
		}
	}
}

// TestLogObjectIsTheRecord checks that the access log has the same fields as the other forms of a
// decision.
func TestLogObjectIsTheRecord(t *testing.T) {
	t.Parallel()
	var full enforce.LogRecord
	fill(reflect.ValueOf(&full).Elem())
	for name, rec := range map[string]enforce.LogRecord{
		"empty":    {},
		"zero":     enforce.Decision{}.Record(),
		"decision": enforce.Decision{Allowed: true, Reason: enforce.ReasonNoRule, Tokens: []string{"a"}, CrawlDelay: 1500e6}.Record(),
		"full":     full,
	} {
		entry, err := zapcore.NewJSONEncoder(zapcore.EncoderConfig{}).EncodeEntry(zapcore.Entry{}, []zap.Field{zap.Object(logKey, logObject{&rec})})
		if err != nil {
			t.Fatal(err)
		}
		var line map[string]any
		if err := json.Unmarshal(entry.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if got := line[logKey]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\nlogged %v\nrecord %v", name, got, want)
		}
	}
}

// fill sets every field of a struct to a value other than zero.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Float64:
			f.SetFloat(float64(i) + 0.5)
		case reflect.Pointer:
			f.Set(reflect.ValueOf(new(int64))) // 0 is a value
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"one", "two"}))
		default:
			panic("fill does not support the type of the field " + v.Type().Field(i).Name)
		}
	}
}

// TestPlaceholderDocs checks that exactly the existing placeholders are documented.
func TestPlaceholderDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(testdocs.Path("docs", "caddyfile.md"))
	if err != nil {
		t.Fatal(err)
	}
	x := new(exchange)
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\{(http\.robots\.[a-z0-9_]+)\}`).FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = true
		if _, ok := x.placeholder(m[1]); !ok {
			t.Errorf("the placeholder {%s} does not exist", m[1])
		}
	}
	there := 0
	for _, name := range append(recordFields(), placeholderMessage) {
		if _, ok := x.placeholder(placeholderPrefix + name); ok {
			there++
			if !documented[placeholderPrefix+name] {
				t.Errorf("{%s%s} is not in the docs", placeholderPrefix, name)
			}
		}
	}
	if there != len(documented) || there == 0 {
		t.Errorf("%d placeholders, %d documented", there, len(documented))
	}
}

// recordFields returns the names of the log's fields.
func recordFields() (names []string) {
	for f := range reflect.TypeFor[enforce.LogRecord]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func TestWithoutHTTP3(t *testing.T) {
	t.Parallel()
	s := &caddyhttp.Server{Protocols: []string{"h1", "h2", "h3"}, ListenProtocols: [][]string{nil, {"h3", "h1"}}}
	if err := engine.WithoutHTTP3(s, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Protocols, []string{"h1", "h2"}) || s.ListenProtocols[0] != nil || !slices.Equal(s.ListenProtocols[1], []string{"h1"}) {
		t.Errorf("the protocols are %v and %v", s.Protocols, s.ListenProtocols)
	}
	if err := engine.WithoutHTTP3(&caddyhttp.Server{Protocols: []string{"h3"}}, zap.NewNop()); err == nil {
		t.Error("WithoutHTTP3 accepts a server with HTTP/3 only")
	}
}

// TestLogFields generates docs/access-log-fields.md from the types of the log objects.
func TestLogFields(t *testing.T) {
	t.Parallel()
	testdocs.Generated(t, "access-log-fields.md", `# Fields of the access log

You look up what a field of a line means. This page is generated from the code. [Read the access log](access-log.md) shows
a line, and how to find the ones that you need.

A field marked "always" is in every line. Others are left out if they are empty. The fields are stable within a schema.

## A request

The object `+"`robots`"+` of a line about a request or a tunnel. Texts of sites and clients are escaped if they are not printable.

`+testdocs.LineTable(testdocs.Fields(t, reflect.TypeFor[enforce.LogRecord]()))+`
## A robots.txt

The object `+"`robots_txt`"+` of a line about a robots.txt. Times have the form of RFC 3339, in UTC.

`+testdocs.LineTable(testdocs.Fields(t, reflect.TypeFor[robotscache.Answer]()))+`
## Next

* [Read the access log](access-log.md)
* [Audit a log](audit.md)
`)
}
