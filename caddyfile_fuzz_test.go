package crawlgate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// place matches the place of a fault in an error. Caddy adds the lines of the blocks around it.
var place = regexp.MustCompile(`, at Caddyfile:[1-9][0-9]*(, at Caddyfile:[1-9][0-9]*)*$`)

// FuzzCaddyfile adapts arbitrary bytes. The adapter must not panic, and each of our errors must
// name a file and a line. The JSON of accepted input must load again and mean the same.
func FuzzCaddyfile(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "adapt", "*.caddyfiletest"))
	if err != nil || len(files) == 0 {
		f.Fatalf("found %d seeds: %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		text, _, _ := strings.Cut(string(content), adaptSeparator)
		f.Add([]byte(text))
	}
	pages, err := filepath.Glob(filepath.Join("docs", "caddyfile*.md"))
	if err != nil || len(pages) < 3 {
		f.Fatal(len(pages), err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, block := range fenced(string(page), "caddyfile") {
			f.Add([]byte(block))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("import")) {
			t.Skip("the input could read any file")
		}
		config, _, err := adapt(string(text), "Caddyfile")
		if err != nil {
			if strings.Contains(err.Error(), "parsing caddyfile tokens for 'robots'") && !place.MatchString(err.Error()) {
				t.Errorf("error without file and line: %v", err)
			}
			return
		}
		var tree any
		if err := json.Unmarshal(config, &tree); err != nil {
			t.Fatal(err)
		}
		eachGateway(tree, func(handler any) {
			h := new(Handler)
			takenAgain(t, handler, h)
			if _, err := h.policy(); err != nil {
				t.Errorf("the gateway's JSON is refused: %v", err)
			}
		})
		root, _ := tree.(map[string]any)
		apps, _ := root["apps"].(map[string]any)
		if engine, ok := apps["robots"]; ok {
			a := new(App)
			takenAgain(t, engine, a)
			if _, err := a.settings(); err != nil {
				t.Errorf("the engine's JSON is refused: %v", err)
			}
		}
	})
}

// takenAgain reads JSON into a value and compares the value's JSON with it.
func takenAgain(t *testing.T, tree, v any) {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("json.Unmarshal: %v\n%s", err, text)
	}
	if text, err = json.Marshal(v); err != nil {
		t.Fatal(err)
	}
	var again any
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if object, ok := again.(map[string]any); ok {
		if want, ok := tree.(map[string]any); ok && want["handler"] != nil {
			object["handler"] = want["handler"]
		}
	}
	if !reflect.DeepEqual(again, tree) {
		t.Errorf("got %v\nwant %v", again, tree)
	}
}
