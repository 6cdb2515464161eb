package follow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollow: a change is seen, a file that cannot be read leaves the value before it, and the error
// is told once.
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
	parse := func(data []byte) (string, error) {
		if strings.Contains(string(data), "bad") {
			return "", errors.New("it is bad")
		}
		return string(data), nil
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []error
		if _, err := Open(ctx, name, 10, parse, nil); err == nil {
			t.Fatal("a missing file was read")
		}
		write("bad", 1)
		if _, err := Open(ctx, name, 10, parse, nil); err == nil || !strings.Contains(err.Error(), name+": it is bad") {
			t.Fatal(err)
		}
		write("one", 2)
		f, err := Open(ctx, name, 10, parse, func(err error) { told = append(told, err) })
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
		}{{"one", "one", 0, false}, {"two", "two", 1, false}, {"bad", "two", 2, true}, {"too long, by far", "two", 3, true}, {"three", "three", 4, false}} {
			if i > 0 {
				write(step.text, int64(10+i))
			}
			look()
			if f.Value() != step.value || len(told) != step.told || step.fails && told[step.told-1] == nil {
				t.Errorf("%s: %q, %v", step.text, f.Value(), told)
			}
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if look(); f.Value() != "three" || len(told) != 5 || told[4] == nil {
			t.Errorf("removed: %q, %v", f.Value(), told)
		}
		cancel()
		synctest.Wait()
	})
}
