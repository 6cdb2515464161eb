package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// TestFollow checks that a change is noticed, that a file that cannot be read does not change the
// value, and that its error is reported once, and again if it recurs. The file is also parsed once.
// After the context has ended, a change is still noticed, but nothing is reported.
func TestFollow(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "hosts")
	write := func(text string, at int64) {
		t.Helper()
		// Editors and Kubernetes replace the file by another one.
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name+".new", time.Unix(at, 0), time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex // guards the two below
	var parses int
	var told []error
	seen := func() (int, []error) {
		mu.Lock()
		defer mu.Unlock()
		return parses, slices.Clone(told)
	}
	parse := func(data []byte) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		parses++
		if strings.Contains(string(data), "bad") {
			return "", errors.New("it is bad")
		}
		return string(data), nil
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := Open(ctx, name, 10, parse, nil); err == nil {
			t.Fatal("a missing file was read")
		}
		write("bad", 1)
		if _, err := Open(ctx, name, 10, parse, nil); err == nil || !strings.Contains(err.Error(), name+": it is bad") {
			t.Fatal(err)
		}
		write("one", 2)
		f, err := Open(ctx, name, 10, parse, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		})
		if err != nil || f.Value() != "one" {
			t.Fatal(f, err)
		}
		look := func() {
			time.Sleep(3 * every)
			synctest.Wait()
		}
		for i, step := range []struct {
			text, value string
			told        int
			fails       bool
			parses      int
		}{{"one", "one", 0, false, 2}, {"two", "two", 1, false, 3}, {"bad", "two", 2, true, 4}, {"too long, by far", "two", 3, true, 4}, {"three", "three", 4, false, 5}} {
			if i > 0 {
				write(step.text, int64(10+i))
			}
			look()
			parses, told := seen()
			if f.Value() != step.value || len(told) != step.told || step.fails && told[step.told-1] == nil || parses != step.parses {
				t.Errorf("%s: %q, %v, parsed %d times", step.text, f.Value(), told, parses)
			}
		}
		away := name + ".away"
		for want := 5; want <= 7; want += 2 { // the file is created again with the same text
			if err := os.Rename(name, away); err != nil {
				t.Fatal(err)
			}
			look()
			if _, told := seen(); f.Value() != "three" || len(told) != want || told[want-1] == nil {
				t.Errorf("removed: %q, %v", f.Value(), told)
			}
			if err := os.Rename(away, name); err != nil {
				t.Fatal(err)
			}
			look()
		}
		cancel()
		_, before := seen()
		for i, step := range []struct{ text, value string }{{"four", "four"}, {"bad", "four"}, {"five", "five"}} {
			write(step.text, int64(20+i))
			look()
			if _, told := seen(); f.Value() != step.value || len(told) != len(before) {
				t.Errorf("%s after the end: %q, told %v", step.text, f.Value(), told[len(before):])
			}
		}
		held := weak.Make(f) // f is not used below
		if runtime.GC(); held.Value() != nil {
			t.Error("a file that nobody follows is kept")
		}
	})
}

// TestUnfinished checks that a file is not read while another program writes it, unless that never
// ends.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "hosts")
	text := ""
	add := func(more string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text+more), 0o600); err != nil { // in place
			t.Fatal(err)
		}
		text += more
	}
	add("one")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f, err := Open(ctx, name, 1000, func(data []byte) (string, error) { return string(data), nil }, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, more := range []string{"\n", "*", ".exam", "ple\n"} {
			add(more)
			time.Sleep(every)
			synctest.Wait()
			if f.Value() != "one" {
				t.Errorf("half of the file was read: %q", f.Value())
			}
		}
		time.Sleep(every)
		synctest.Wait()
		if f.Value() != "one\n*.example\n" {
			t.Errorf("after 2 looks: %q", f.Value())
		}
		for range restless {
			add("#")
			time.Sleep(every)
			synctest.Wait()
		}
		if f.Value() != text {
			t.Errorf("a file without rest was not read: %q", f.Value())
		}
		cancel()
		synctest.Wait()
	})
}

// TestElsewhere checks that a file is parsed again while the cause of its error lies elsewhere, and
// that a new one is still not read before it is at rest.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var taken atomic.Bool
		f, err := Open(ctx, name, 1000, func(data []byte) (string, error) {
			if string(data) == "two" && taken.Load() {
				return "", Elsewhere(errors.New("another has it"))
			}
			return string(data), nil
		}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		look := func(n int, want string) {
			t.Helper()
			time.Sleep(time.Duration(n) * every)
			synctest.Wait()
			if f.Value() != want {
				t.Errorf("the value is %q, want %q", f.Value(), want)
			}
		}
		taken.Store(true)
		write("two")
		look(3, "one")
		write("half")
		look(1, "one")
		write("half and half")
		look(1, "one")
		look(1, "half and half")
		write("two")
		look(3, "half and half")
		taken.Store(false)
		look(1, "two")
		cancel()
		synctest.Wait()
	})
}

// TestUnseemly checks that a change is noticed even if size and time are unchanged, as after cp -p.
// Only regular files are opened: a pipe would block.
func TestUnseemly(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "hosts")
	write := func(text string) os.FileInfo {
		t.Helper()
		old := time.Unix(1, 0)
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o600), os.Chtimes(name, old, old)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := write("one")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []error
		f, err := Open(ctx, name, 10, func(data []byte) (string, error) { return string(data), nil }, func(err error) { told = append(told, err) })
		if err != nil {
			t.Fatal(err)
		}
		look := func() {
			time.Sleep(2 * every)
			synctest.Wait()
		}
		for same(before, write("two")) && runtime.GOOS == "linux" { // until the kernel's clock advances
			continue
		}
		if look(); f.Value() != "two" && runtime.GOOS == "linux" {
			t.Errorf("a change was not seen: %q", f.Value())
		}
		if err := errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)); err != nil {
			t.Fatal(err)
		}
		if look(); len(told) != 2 || told[1] == nil || !strings.Contains(told[1].Error(), "not a regular file") {
			t.Errorf("a pipe: %v", told)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		write("six")
		if look(); f.Value() != "six" {
			t.Errorf("after a pipe: %q, %v", f.Value(), told)
		}
		cancel()
		synctest.Wait()
	})
}
