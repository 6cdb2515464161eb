package caddylog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

const vkey = "witness.example+29560cff+BKLXSDDuxAE0c8HNaFMPxesGDb3ZaHvDsugneoYr8tWr"

func parse(text string) (*Evidence, error) {
	e := new(Evidence)
	return e, e.UnmarshalCaddyfile(caddyfile.NewTestDispenser("robots_evidence {\n" + text + "\n}\n"))
}

// TestOptions checks that the JSON has each option of the Caddyfile.
func TestOptions(t *testing.T) {
	t.Parallel()
	e, err := parse("file /l/a.log {\nroll_size 1MiB\n}\nname n\nkey /k\nstate /s\nevery 2s 30\nheads /h\nwitness https://w " + vkey + "\non_failure refuse")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(e)
	want := `{"writer":{"filename":"/l/a.log","output":"file","roll_size_mb":1},"name":"n","key":"/k","state":"/s","every":2000000000,"lines":30,` +
		`"heads":"/h","witnesses":[{"url":"https://w","key":"` + vkey + `"}],"on_failure":"refuse"}`
	if string(got) != want || err != nil {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	if e, err := parse("every 10ms\nfile a.log"); err != nil || e.Lines != 0 || e.Name != "" {
		t.Errorf("without other options: got %+v, %v", e, err)
	}
}

// TestCaddyfileErrors checks that an error names its line.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, place, want string }{
		{"name a", ":1", "robots_evidence has no writer: want file"},
		{"file a\nfile b", ":3", `option "file" of robots_evidence is given twice`},
		{"file a {\nnonsense\n}", ":3", "unrecognized subdirective 'nonsense'"},
		{"file", ":2", `option "file" of robots_evidence takes 1 argument, found 0`},
		{"file a\nlevel 1", ":3", `unknown option "level"`},
		{"file a\nname ../x", ":3", `name of the log "../x"`},
		{"file a\nevery 1ms", ":3", "every 1ms: want 10ms to 1h"},
		{"file a\nevery 1s 0", ":3", `"0" is not a whole number`},
		{"file a\nneed 1", ":3", `unknown option "need"`},
		{"file a\nwitness http://w x", ":3", "key of witness http://w: "},
		{"file a\nwitness http://w " + vkey + "\nwitness http://v " + vkey, ":4", "witness witness.example is given twice"},
		{"file a\non_failure stop", ":3", `on_failure "stop": want "log" or "refuse"`},
	} {
		_, err := parse(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "Testfile"+tt.place) {
			t.Errorf("%q: got %v\nwant %s at %s", tt.text, err, tt.want, tt.place)
		}
	}
}

// TestOnlyFiles checks that a log that cannot be read back is refused.
func TestOnlyFiles(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"output":"stdout"}`: "robots_evidence writes to a *caddy.StdoutWriter: want file", ``: "has no writer",
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		e := new(Evidence)
		if raw != "" {
			e.WriterRaw = json.RawMessage(raw)
		}
		err := e.Provision(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

// TestAlone checks which configurations keep all checkpoints on the machine.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text         string
		fleet, alone bool
	}{
		{"file a", false, true},
		{"file a", true, false},
		{"file a\nheads /h", false, false},
		{"file a\nwitness https://w " + vkey, false, false},
	} {
		e, err := parse(tt.text)
		if err == nil {
			err = e.check()
		}
		if c := (settings{e, "gw", tt.fleet, nil}); err != nil || c.staysLocal() != tt.alone {
			t.Errorf("%q, fleet %t: stays local = %t, %v", tt.text, tt.fleet, c.staysLocal(), err)
		}
	}
}
