package caddylog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/logging"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/internal/block"
)

// Defaults of Caddy's file writer for roll_keep, roll_keep_for and roll_size.
const (
	DefaultRollKeep     = 10
	DefaultRollKeepDays = 90
	DefaultRollSizeMB   = 100
)

func init() {
	caddy.RegisterModule(new(Evidence))
}

// Evidence writes a log to files and seals it: each line gets a number, and signed checkpoints show
// later whether lines were removed, added or changed. docs/evidence.md says what that proves. It is
// for access logs of sites with the handler http.handlers.robots: entries that are logged before
// these sites start are refused.
type Evidence struct {
	// WriterRaw is the writer of the file: Caddy's `file`. Required.
	WriterRaw json.RawMessage `json:"writer,omitempty" caddy:"namespace=caddy.logging.writers inline_key=output"`
	// Name is the name of the log in its log ID. Default: `access`.
	Name string `json:"name,omitempty"`
	// Key is the file of the private key that signs: PEM (PKCS #8, Ed25519). It is created if it is
	// missing. Default: `key` in the log's folder of [Evidence.State].
	Key string `json:"key,omitempty"`
	// State is the folder for hashes and checkpoints. Default: `evidence` in the folder of the log's
	// file.
	State string `json:"state,omitempty"`
	// Every is how long new lines wait for a checkpoint at most. Default: 1s.
	Every caddy.Duration `json:"every,omitempty"`
	// Lines is how many new lines get a checkpoint at once, if [Evidence.Every] is not over. Default:
	// 1000.
	Lines int `json:"lines,omitempty"`
	// Heads is a file for a second copy of all checkpoints, on another disk or machine. Default: none.
	Heads string `json:"heads,omitempty"`
	// Witnesses are services that cosign the checkpoints (C2SP tlog-witness). A checkpoint that no
	// witness cosigns is reported and counted. Default: none.
	Witnesses []WitnessConfig `json:"witnesses,omitempty"`
	// OnFailure says what happens while the log cannot be written or sealed: `log` reports it,
	// `refuse` also refuses all proxied requests with 503. Default: `log`.
	OnFailure string `json:"on_failure,omitempty"`

	file      *logging.FileWriter
	witnesses []sealer.Witness
	paths     struct{ log, state, key, heads string }
	done      <-chan struct{} // closed when the configuration ends
	text      string          // the options as JSON, for comparison
}

// WitnessConfig is a witness of C2SP tlog-witness.
type WitnessConfig struct {
	// URL is the submission prefix of the witness. Required.
	URL string `json:"url"`
	// Key is the verifier key of its cosignatures. Required.
	Key string `json:"key"`
}

// CaddyModule returns the Caddy module information.
func (*Evidence) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.robots_evidence", New: func() caddy.Module { return new(Evidence) }}
}

// Provision checks the configuration. It opens no file: `validate` must work while a gateway runs.
func (e *Evidence) Provision(ctx caddy.Context) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	e.text = string(text)
	if err := e.check(); err != nil {
		return err
	}
	nested, err := ctx.LoadModule(e, "WriterRaw")
	if err != nil {
		return fmt.Errorf("loading the writer of the file: %w", err)
	}
	file, ok := nested.(*logging.FileWriter)
	if !ok {
		return fmt.Errorf("robots_evidence writes to a %T: want file, which it can read again after a crash", nested)
	}
	e.file = file
	if err := e.resolve(); err != nil {
		return err
	}
	e.done = ctx.Done()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.modules = append(all.modules, e)
	return nil
}

// check fills in defaults and checks the options.
func (e *Evidence) check() error {
	e.Name = cmp.Or(e.Name, "access")
	e.Every = cmp.Or(e.Every, caddy.Duration(time.Second))
	e.Lines = cmp.Or(e.Lines, 1000)
	e.OnFailure = cmp.Or(e.OnFailure, "log")
	id := evidence.LogID{Gateway: "gateway", Log: e.Name, Generation: 1}
	switch {
	case e.WriterRaw == nil:
		return errors.New("robots_evidence has no writer: want file")
	case id.Check() != nil:
		return id.Check()
	case e.Every < caddy.Duration(10*time.Millisecond) || e.Every > caddy.Duration(time.Hour):
		return fmt.Errorf("every %v: want 10ms to 1h", time.Duration(e.Every))
	case e.Lines < 1:
		return fmt.Errorf("every %d lines: want at least 1", e.Lines)
	case e.OnFailure != "log" && e.OnFailure != "refuse":
		return fmt.Errorf(`on_failure %q: want "log" or "refuse"`, e.OnFailure)
	}
	e.witnesses = nil
	for _, c := range e.Witnesses {
		w, err := sealer.ParseWitness(c.URL, c.Key)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(e.witnesses, func(o sealer.Witness) bool { return o.Verifier.Name() == w.Verifier.Name() }) {
			return fmt.Errorf("witness %s is given twice", w.Verifier.Name())
		}
		e.witnesses = append(e.witnesses, w)
	}
	return nil
}

func (e *Evidence) resolve() error {
	var errs []error
	absolute := func(option, path string) string {
		text, err := caddy.NewReplacer().ReplaceOrErr(path, true, true)
		if err == nil && text != "" {
			text, err = filepath.Abs(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", option, err))
		}
		return text
	}
	e.paths.log, e.paths.key, e.paths.heads = absolute("file", e.file.Filename), absolute("key", e.Key), absolute("heads", e.Heads)
	e.paths.state = cmp.Or(absolute("state", e.State), filepath.Join(filepath.Dir(e.paths.log), "evidence"))
	return errors.Join(errs...)
}

// String names the log in messages.
func (e *Evidence) String() string { return e.file.String() + " (sealed)" }

// WriterKey identifies the log across reloads: names are unique in a state folder.
func (e *Evidence) WriterKey() string { return "robots_evidence:" + e.paths.state + ":" + e.Name }

// OpenWriter implements [caddy.WriterOpener]. [Start] opens the files.
func (e *Evidence) OpenWriter() (io.WriteCloser, error) { return all.open(e.WriterKey()), nil }

// Cleanup removes the configuration from its log.
func (e *Evidence) Cleanup() error {
	all.remove(e)
	return nil
}

func (e *Evidence) config(gateway string, report func(sealer.Event)) sealer.Config {
	t := evidence.Terms{Every: time.Duration(e.Every).Seconds(), Lines: e.Lines}
	if w := e.file; w.Roll == nil || *w.Roll {
		t.Files, t.Days = cmp.Or(w.RollKeep, DefaultRollKeep), cmp.Or(w.RollKeepDays, DefaultRollKeepDays)
		t.SizeMB = cmp.Or(w.RollSizeMB, DefaultRollSizeMB)
	}
	return sealer.Config{
		Gateway: gateway, Name: e.Name, File: e.paths.log, Open: e.file.OpenWriter,
		State: e.paths.state, Key: e.paths.key, Checkpoints: e.paths.heads,
		Terms: t, Witnesses: e.witnesses, Report: report,
	}
}

// UnmarshalCaddyfile reads the writer. Only file is required. The values shown are the defaults.
//
//	robots_evidence {
//		file <path> {
//			...
//		}
//		name access
//		key <file>
//		state <folder>
//		every 1s 1000
//		heads <file>
//		witness <url> <key>
//		on_failure log|refuse
//	}
func (e *Evidence) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the writer's name
	return block.Segment(d, e, func() *Evidence { return new(Evidence) }, (*Evidence).read, (*Evidence).compile)
}

// compile checks a copy, so that the adapted JSON has no defaults filled in.
func (e *Evidence) compile() (struct{}, error) {
	c := *e
	return struct{}{}, c.check()
}

func (e *Evidence) read(r *block.Reader) error {
	if r.NextArg() {
		return r.Errf(`"robots_evidence" takes no argument, found %q`, r.Val())
	}
	return block.Fields(e, map[string]string{"lines": ""}, block.Grammar{
		"file":    {Min: 1, Max: 1, Block: e.readFile},
		"key":     block.Replaced(&e.Key),
		"state":   block.Replaced(&e.State),
		"heads":   block.Replaced(&e.Heads),
		"every":   {Min: 1, Max: 2, Set: e.setEvery},
		"witness": {Min: 2, Max: 2, Repeat: true, Set: e.addWitness},
	}).Read(r, "robots_evidence")
}

func (e *Evidence) setEvery(args []string) (err error) {
	if e.Every, err = block.ParsePositive(args[0]); err != nil || len(args) == 1 {
		return err
	}
	e.Lines, err = block.ParseCount(1, block.MaxCount)(args[1])
	return err
}

func (e *Evidence) addWitness(args []string) error {
	e.Witnesses = append(e.Witnesses, WitnessConfig{args[0], args[1]})
	return nil
}

// readFile reads the nested writer: its argument is the current token.
func (e *Evidence) readFile(r *block.Reader, _ []string) error {
	name := r.Token()
	name.Text = "file"
	d := caddyfile.NewDispenser(append([]caddyfile.Token{name}, r.NextSegment()...))
	d.Next()
	nested, err := caddyfile.UnmarshalModule(d, "caddy.logging.writers.file")
	if err != nil {
		return err
	}
	e.WriterRaw = caddyconfig.JSONModuleObject(nested, "output", "file", nil)
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*Evidence)(nil)
	_ caddy.CleanerUpper    = (*Evidence)(nil)
	_ caddy.WriterOpener    = (*Evidence)(nil)
	_ caddyfile.Unmarshaler = (*Evidence)(nil)
)
