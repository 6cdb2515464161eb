package crawlgate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/logging"
)

func init() {
	caddy.RegisterModule(new(nestingWriter))
}

// nestingWriter is a log writer that hands all to another one.
type nestingWriter struct{ caddy.WriterOpener }

func (*nestingWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.nesting", New: func() caddy.Module { return new(nestingWriter) }}
}

func (w *nestingWriter) Provision(caddy.Context) error {
	w.WriterOpener = &logging.FileWriter{Filename: os.DevNull, RollKeepDays: 500}
	return nil
}

func (*nestingWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

// TestLogKeptLongerThanTexts: the operator is told of a log whose lines cannot be proven any more at
// its end.
func TestLogKeptLongerThanTexts(t *testing.T) {
	file := func(keep string) string {
		return "log {\noutput file %[1]s/" + keep + ".log {\nroll_keep_for " + keep + "\n}\n}"
	}
	for name, test := range map[string]struct {
		global, store, site, other string
		warned                     bool
	}{
		"default":             {site: file("400d")},
		"longer":              {site: file("401d"), warned: true},
		"longer in hours":     {site: file("9601h"), warned: true},
		"as long as retain":   {store: "file %[1]s/db {\nretain 500d\n}", site: file("500d")},
		"short retain":        {store: "file %[1]s/db {\nretain 7d\n}", site: file("8d"), warned: true},
		"inside another":      {site: "log {\noutput nesting\n}", warned: true},
		"not said":            {site: "log {\noutput file %[1]s/a.log\n}"},
		"of the process":      {global: strings.Replace(file("900d"), "log {", "log default {", 1), site: file("1d")},
		"of all, and so ours": {global: strings.Replace(file("900d"), "log {", "log default {", 1), site: "log", warned: true},
		"of another site":     {site: file("1d"), other: file("900d")},
		"no log":              {},
		"nothing is stored":   {store: "none", site: file("900d")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store := test.store
			if store == "" {
				store = "file %[1]s/db"
			}
			text := fmt.Sprintf("{\nadmin off\npersist_config off\n"+test.global+"\nlog process {\noutput file %[1]s/process.log\ninclude robots\n}\n"+
				"robots {\nstore "+store+"\n}\n}\n"+
				"http://:80 {\nbind unix/%[1]s/a.sock\n"+test.site+"\nrobots\n}\n"+
				"http://:81 {\nbind unix/%[1]s/b.sock\n"+test.other+"\nrespond 200\n}\n", dir)
			config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
			if err != nil {
				t.Fatal(err)
			}
			if err := caddy.Load(config, true); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Stop(); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(dir, "process.log"))
			if err != nil {
				t.Fatal(err)
			}
			const message = "a log keeps lines longer than the store keeps the texts that prove them"
			if n := strings.Count(string(log), message); n > 1 || (n == 1) != test.warned {
				t.Errorf("warned %d times, want %t:\n%s", n, test.warned, log)
			}
		})
	}
}
