package caddylog

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/logging"
)

// TestRetention checks that the lines that roll_keep keeps are compared with roll_keep_for
// (docs/operate.md).
func TestRetention(t *testing.T) {
	t.Parallel()
	off, now := false, time.Unix(1e9, 0)
	year := logging.FileWriter{RollKeep: 1e6, RollKeepDays: 365}
	with := func(change func(w *logging.FileWriter)) logging.FileWriter {
		w := year
		change(&w)
		return w
	}
	for _, tt := range []struct {
		name        string
		writer      logging.FileWriter
		rolled      int
		age         time.Duration
		kept, might bool
	}{
		{"nothing is promised", logging.FileWriter{}, 10, time.Hour, true, false},
		{"a year by time", year, 1000, 10 * day, true, false},
		{"100 files of 100 MiB, the packages' Caddyfile of before", with(func(w *logging.FileWriter) { w.RollKeep = 100 }), 0, 0, true, true},
		{"the same, at 100 requests a second", with(func(w *logging.FileWriter) { w.RollKeep = 100 }), 100, 22 * time.Hour, false, true},
		{"the same, at few", with(func(w *logging.FileWriter) { w.RollKeep = 400 }), 400, 366 * day, true, false},
		{"the default roll_keep", with(func(w *logging.FileWriter) { w.RollKeep = 0 }), 10, day, false, true},
		{"small files", with(func(w *logging.FileWriter) { w.RollKeep, w.RollSizeMB = 1000, 1 }), 0, 0, true, true},
		{"a file a day", with(func(w *logging.FileWriter) { w.RollKeep, w.RollAt = 364, []string{"00:00"} }), 0, 0, false, true},
		{"enough of them", with(func(w *logging.FileWriter) { w.RollKeep, w.RollAt = 366, []string{"00:00"} }), 0, 0, true, true},
		{"two files an hour", with(func(w *logging.FileWriter) { w.RollKeep, w.RollAtMinutes = 365*48-1, []int{0, 30} }), 0, 0, false, true},
		{"a file a minute", with(func(w *logging.FileWriter) { w.RollKeep, w.RollInterval = 1e5, caddy.Duration(time.Minute) }), 0, 0, false, true},
		{"no file is ever dropped", with(func(w *logging.FileWriter) { w.RollKeep, w.Roll = 1, &off }), 5, day, true, false},
	} {
		path := filepath.Join(t.TempDir(), "access.log")
		line := []byte(`{"level":"info","ts":` + now.Add(-tt.age).UTC().Format(`"2006-01-02T15:04:05Z"`) + `}` + "\n")
		names := []string{path}
		for i := range tt.rolled {
			names = append(names, filepath.Join(filepath.Dir(path), "access-"+time.Unix(int64(i), 0).UTC().Format("2006-01-02T15-04-05.000")+"-size.log"))
		}
		for _, name := range names {
			if err := os.WriteFile(name, line, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l := File{Path: path, Writer: &tt.writer}
		might := l.look(now)
		if l.Kept != tt.kept || might != tt.might || !l.Oldest.Equal(now.Add(-tt.age)) || l.rolled != tt.rolled {
			t.Errorf("%s: kept = %t, might not be = %t, %d files from %v", tt.name, l.Kept, might, l.rolled, l.Oldest)
		}
	}
}

// TestRenamed checks that an open file that logrotate has renamed is distinguished from others.
func TestRenamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var links []string
	for name, there := range map[string][]string{
		"a.log.1": {"a.log"}, "b.log-20261126": {"b.log"}, "c.log-20261126-1764115200": {"c.log"}, // renamed
		"d.log": {"d.log.1"}, "e.log.1": nil, "f-2026-11-26T10-00-00.000-size.log": {"f.log"}, "robots.db": nil,
	} {
		for _, file := range append(there, name) {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		links = append(links, filepath.Join(dir, "link to "+name))
		if err := os.Symlink(filepath.Join(dir, name), links[len(links)-1]); err != nil {
			t.Fatal(err)
		}
	}
	got := renamed(append(links, filepath.Join(dir, "nothing"), "socket:[1]"))
	slices.Sort(got)
	want := []string{filepath.Join(dir, "a.log.1"), filepath.Join(dir, "b.log-20261126"), filepath.Join(dir, "c.log-20261126-1764115200")}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestFirstTime reads the first time of plain and compressed files, in all forms of time_format
// except the local ones.
func TestFirstTime(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"ts":1000000000.25,"msg":"a"}` + "\n"))
	_ = z.Close()
	for text, want := range map[string]int64{
		`{"ts":1000000000.25}` + "\n{":       1e9,
		`{"ts":1000000000250.5}` + "\n":      1e9,
		`{"ts":1000000000250000000}`:         1e9,
		`{"ts":"2001-09-09T03:46:40+02:00"}`: 1e9,
		packed.String():                      1e9,
		`{"ts":"1 May"}`:                     0, `{}`: 0, "": 0, "x": 0, `{"ts":[]}`: 0, "\x1f\x8b": 0,
	} {
		name := filepath.Join(t.TempDir(), "a.log")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if at := firstTime(name); at.IsZero() != (want == 0) || want != 0 && at.Unix() != want {
			t.Errorf("%q: firstTime = %v", text, at)
		}
	}
	if at := firstTime("/nowhere"); !at.IsZero() {
		t.Errorf("firstTime of a missing file = %v, want zero", at)
	}
}
