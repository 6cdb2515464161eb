package crawlgate

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// adaptSeparator separates the Caddyfile from the JSON in a .caddyfiletest, as in Caddy's own
// tests.
const adaptSeparator = "----------\n"

// TestAdapt compares the JSON that Caddyfiles are adapted to with the JSON in testdata: automation
// relies on it. With -update it writes the JSON.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "adapt", "*.caddyfiletest"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files in testdata/adapt: %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, want, _ := strings.Cut(string(content), adaptSeparator)
		config, warnings, err := adapt(text, filepath.Base(file))
		if err != nil || len(warnings) > 0 {
			t.Errorf("adapting %s: error %v, warnings %v", file, err, warnings)
			continue
		}
		if err := validate(config); err != nil {
			t.Errorf("validating %s: %v", file, err)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, config, "", "\t"); err != nil {
			t.Fatal(err)
		}
		got := indented.String() + "\n"
		if *testdocs.Update {
			if err := os.WriteFile(file, []byte(text+adaptSeparator+got), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got != want {
			t.Errorf("%s:\n got %s\nwant %s", file, got, want)
		}
	}
}

// TestEveryFieldHasAnOption checks that the Caddyfiles of TestAdapt set every field of the JSON, so
// no field can be set in JSON only.
func TestEveryFieldHasAnOption(t *testing.T) {
	unset := make(map[string]bool)
	for _, root := range []reflect.Type{reflect.TypeFor[App](), reflect.TypeFor[Handler]()} {
		jsonFields(root, root.Name(), func(path string) { unset[path] = true })
	}
	all := len(unset)
	files, err := filepath.Glob(filepath.Join("testdata", "adapt", "*.caddyfiletest"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, config, _ := strings.Cut(string(content), adaptSeparator)
		var tree any
		if err := json.Unmarshal([]byte(config), &tree); err != nil {
			t.Fatal(err)
		}
		eachGateway(tree, func(handler any) { jsonValues(handler, "Handler", unset) })
		if apps, ok := tree.(map[string]any)["apps"].(map[string]any); ok {
			jsonValues(apps["robots"], "App", unset)
		}
	}
	for path := range unset {
		t.Errorf("%s is set by no Caddyfile in testdata/adapt", path)
	}
	if all < 40 {
		t.Errorf("found %d JSON fields, want at least 40", all)
	}
}

// jsonFields visits the JSON fields of a struct and of the structs in it.
func jsonFields(typ reflect.Type, path string, visit func(path string)) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	for field := range typ.Fields() {
		if field.Anonymous {
			jsonFields(field.Type, path, visit)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		visit(path + "." + name)
		jsonFields(field.Type, path+"."+name, visit)
	}
}

// jsonValues deletes the fields that a JSON tree sets.
func jsonValues(tree any, path string, unset map[string]bool) {
	switch v := tree.(type) {
	case map[string]any:
		for name, value := range v {
			delete(unset, path+"."+name)
			jsonValues(value, path+"."+name, unset)
		}
	case []any:
		for _, value := range v {
			jsonValues(value, path, unset)
		}
	}
}

// eachGateway visits the "robots" handlers of a configuration.
func eachGateway(tree any, visit func(handler any)) {
	switch v := tree.(type) {
	case map[string]any:
		if v["handler"] == "robots" {
			visit(v)
		}
		for _, value := range v {
			eachGateway(value, visit)
		}
	case []any:
		for _, value := range v {
			eachGateway(value, visit)
		}
	}
}

// TestExamples adapts and validates every Caddyfile of examples/ and of the packages, and checks
// that `crawlgate fmt` would not change them.
func TestExamples(t *testing.T) {
	// The examples write logs to paths of a server, which a test must not use.
	t.Setenv("CRAWLGATE_LOG", filepath.Join(t.TempDir(), "access.log"))
	found := 0
	check := func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(d.Name(), "Caddyfile") {
			return err
		}
		found++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(caddyfile.Format(text), text) {
			t.Errorf("`crawlgate fmt` would change %s", path)
		}
		checkCaddyfile(t, path, string(text))
		return nil
	}
	for _, dir := range []string{"examples", "packaging"} {
		before := found
		if err := filepath.WalkDir(dir, check); err != nil || found == before {
			t.Errorf("found %[2]d Caddyfiles in %[1]s: %[3]v", dir, found-before, err)
		}
	}
}

// TestDocumentedCaddyfiles adapts and validates every fenced Caddyfile of the README and of docs/.
func TestDocumentedCaddyfiles(t *testing.T) {
	t.Setenv("CRAWLGATE_LOG", filepath.Join(t.TempDir(), "access.log"))
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	pages, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	readmes, err := filepath.Glob(filepath.Join("examples", "*", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(append(pages, readmes...), "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fenced(string(text), "caddyfile") {
			found++
			// The keys of an agent are read when the configuration is loaded.
			checkCaddyfile(t, page, strings.ReplaceAll(block, "/var/lib/crawlgate/acmebot.jwk", "testdata/adapt/bot.jwk"))
		}
	}
	if found == 0 {
		t.Error("found no Caddyfile in the documentation")
	}
}

func checkCaddyfile(t *testing.T, path, text string) {
	t.Helper()
	config, warnings, err := adapt(text, path)
	if err != nil || len(warnings) > 0 {
		t.Errorf("adapting a Caddyfile of %s: error %v, warnings %v\n%s", path, err, warnings, text)
		return
	}
	if err := validate(config); err != nil {
		t.Errorf("validating a Caddyfile of %s: %v\n%s", path, err, text)
	}
}

// fenced returns the fenced blocks of the given language in a Markdown page.
func fenced(page, language string) (blocks []string) {
	for {
		_, rest, found := strings.Cut(page, "```"+language+"\n")
		if !found {
			return blocks
		}
		block, after, closed := strings.Cut(rest, "```\n")
		if !closed {
			block, after = rest, ""
		}
		blocks, page = append(blocks, block), after
	}
}
