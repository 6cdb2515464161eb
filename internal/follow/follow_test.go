package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollow: a change is seen, a file that cannot be read leaves the value before it, and the error
// is told once, and again if it comes back. It is parsed once too.
func TestFollow(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "hosts")
	write := func(text string, at int64) {
		t.Helper()
		// As an editor and Kubernetes do: another file takes the place of the first.
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
		for want := 5; want <= 6; want++ { // it comes back as it was
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
		synctest.Wait()
	})
}
