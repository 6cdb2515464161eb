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

// place is how an error says where the fault is. Caddy adds the lines of the blocks around.
var place = regexp.MustCompile(`, at Caddyfile:[1-9][0-9]*(, at Caddyfile:[1-9][0-9]*)*$`)

// FuzzCaddyfile adapts any bytes. The adapter never panics, and each of our errors has a file and a line. Accepted
// input becomes JSON that can be loaded again and means the same.
func FuzzCaddyfile(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "adapt", "*.caddyfiletest"))
	if err != nil || len(files) == 0 {
		f.Fatalf("%d seeds, %v", len(files), err)
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
			t.Skip("it could read any file")
		}
		config, _, err := adapt(string(text), "Caddyfile")
		if err != nil {
			if strings.Contains(err.Error(), "parsing caddyfile tokens for 'robots'") && !place.MatchString(err.Error()) {
				t.Errorf("without file and line: %v", err)
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
				t.Errorf("the gateway is refused as JSON: %v", err)
			}
		})
		root, _ := tree.(map[string]any)
		apps, _ := root["apps"].(map[string]any)
		if engine, ok := apps["robots"]; ok {
			a := new(App)
			takenAgain(t, engine, a)
			if _, err := a.settings(); err != nil {
				t.Errorf("the engine is refused as JSON: %v", err)
			}
		}
	})
}

// takenAgain reads JSON into a value and compares what the value says with it.
func takenAgain(t *testing.T, tree, v any) {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%v: %s", err, text)
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
