package boltstore_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// TestReader reads the content of a store and checks that the file does not change.
func TestReader(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	s := open(t, boltstore.Config{Path: path})
	policy, start := fetch.Policy{}.Complete(), time.Now()
	text := []byte("User-agent: *\nDisallow: /x\n")
	save(t, s, policy.Next(fetch.Record{Origin: example(1)}, fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: text}, start))
	_, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true, LockTimeout: 10 * time.Millisecond})
	holder := fmt.Sprintf("another process has it open: process %d ", os.Getpid())
	if !errors.Is(err, boltstore.ErrLocked) || runtime.GOOS == "linux" && !strings.Contains(err.Error(), holder) {
		t.Errorf("opening the file while the store is open: got %v, want ErrLocked", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var readers [2]*boltstore.Store // several readers may have it open
	for i := range readers {
		r, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		readers[i] = r
		if got, err := r.Body(t.Context(), sha256.Sum256(text)); err != nil || !bytes.Equal(got, text) {
			t.Errorf("Body = %q, %v", got, err)
		}
		if _, err := r.Body(t.Context(), [32]byte{1}); !errors.Is(err, robotscache.ErrNotFound) {
			t.Errorf("Body of a missing text: got %v, want ErrNotFound", err)
		}
	}
	if err := readers[0].Delete(t.Context(), fetch.Key{Origin: example(1)}); !errors.Is(err, robotscache.ErrUnavailable) {
		t.Errorf("Delete of a reader: got %v, want ErrUnavailable", err)
	}
	for _, r := range readers {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the reader changed the file (error %v)", err)
	}
}

// TestReaderRefuses checks that a reader refuses a file that is not a store, and does not create a
// file.
func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.db")
	if _, err := boltstore.Open(boltstore.Config{Path: missing, ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a missing file: got %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the reader created a file")
	}
	if _, err := boltstore.Open(boltstore.Config{Path: dir, ReadOnly: true}); err == nil {
		t.Error("Open accepts a folder")
	}
	foreign, torn := filepath.Join(dir, "foreign.db"), filepath.Join(dir, "torn.db")
	db, err := bolt.Open(foreign, 0o600, nil)
	if err := errors.Join(err, db.Close(), os.WriteFile(torn, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{foreign, torn} {
		if _, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true}); err == nil {
			t.Errorf("Open accepts %s, which is not a store", path)
		}
	}
	old := filepath.Join(dir, "newer.db")
	filled(t, old, 1)
	change(t, old, func(tx *bolt.Tx) error { return setFormat(tx, 5) })
	if _, err := boltstore.Open(boltstore.Config{Path: old, ReadOnly: true}); err == nil {
		t.Error("Open accepts a file of a later release")
	}
}
