package boltstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

// filled writes a store with n records and returns them.
func filled(tb testing.TB, path string, n int) []fetch.Record {
	tb.Helper()
	s, err := boltstore.Open(boltstore.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	var all []fetch.Record
	for i := range n {
		all = append(all, storetest.Rules(example(i), fmt.Sprintf("User-agent: *\nDisallow: /%d\n", i), time.Now()))
	}
	save(tb, s, all...)
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// A file that is not one of our stores, or is damaged, is refused with its path and left unchanged.
func TestOpen_RefusesAndLeavesAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		make func(tb testing.TB, path string)
		want string
	}{
		{"text", func(tb testing.TB, path string) {
			tb.Helper()
			write(tb, path, []byte(strings.Repeat("these are my notes\n", 1000)))
		}, "it is not a robots.txt store"},
		{"one byte", func(tb testing.TB, path string) { tb.Helper(); write(tb, path, []byte{0}) }, "it is not a robots.txt store"},
		{"empty", func(tb testing.TB, path string) { tb.Helper(); write(tb, path, nil) }, "it is damaged"},
		{"another program's bbolt file", func(tb testing.TB, path string) {
			tb.Helper()
			db, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				tb.Fatal(err)
			}
			err = db.Update(func(tx *bolt.Tx) error {
				_, err := tx.CreateBucket([]byte("origins"))
				return err
			})
			if err := errors.Join(err, db.Close()); err != nil {
				tb.Fatal(err)
			}
		}, "it is not a robots.txt store"},
		{"cut to half", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 500)
			cut(tb, path, used(tb, path)/2)
		}, "it is damaged"},
		{"cut by a byte", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 500)
			cut(tb, path, used(tb, path)-1)
		}, "bytes are there"},
		{"cut in the header", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 5)
			cut(tb, path, 50)
		}, "it is not a robots.txt store"},
		{"both headers overwritten", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 5)
			patch(tb, path, 30, []byte("damage"))
			patch(tb, path, int64(os.Getpagesize()+30), []byte("damage"))
		}, "or its beginning is damaged"},
		{"empty", func(tb testing.TB, path string) { tb.Helper(); write(tb, path, nil) }, "it is damaged"},
		{"without its records", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 5)
			change(tb, path, func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("texts")) })
		}, "it has no texts"},
		{"format of a later release", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 5)
			change(tb, path, func(tx *bolt.Tx) error { return setFormat(tx, 5) })
		}, "another release of Crawlgate wrote it: its format is 5, and this release uses format 4"},
		{"format of an earlier release", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 5)
			change(tb, path, func(tx *bolt.Tx) error { return setFormat(tx, 1) })
		}, "another release of Crawlgate wrote it: its format is 1, and this release uses format 4"},
		{"no format", func(tb testing.TB, path string) {
			tb.Helper()
			filled(tb, path, 5)
			change(tb, path, func(tx *bolt.Tx) error { return tx.Bucket([]byte("crawlgate")).Delete([]byte("format")) })
		}, "it is not a robots.txt store"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "robots.db")
			test.make(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := boltstore.Open(boltstore.Config{Path: path})
			if err == nil {
				_ = s.Close()
				t.Fatal("Open gives no error")
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want the path and %q", err, test.want)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("Open changed the file (error %v)", err)
			}
		})
	}
}

// TestOpen_MadeInPart checks that a store without buckets, as a gateway leaves it that is killed
// while it creates the store, is completed at the next start.
func TestOpen_MadeInPart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true}); err == nil {
		t.Error("Open for reading gives no error for a file without buckets")
	}
	filled(t, path, 1)
}

func TestOpen_NotAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := boltstore.Open(boltstore.Config{Path: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("opening a folder: got %v, want an error with its path", err)
	}
	write(t, filepath.Join(dir, "file"), nil)
	if _, err := boltstore.Open(boltstore.Config{Path: filepath.Join(dir, "file", "db")}); err == nil {
		t.Error("opening a path through a file gives no error")
	}
	if _, err := boltstore.Open(boltstore.Config{}); err == nil {
		t.Error("opening without a path gives no error")
	}
}

// Only one process may have the file open. Another gets an error after a short time.
func TestOpen_Locked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	s := open(t, boltstore.Config{Path: path})
	save(t, s, storetest.Rules(example(1), "text", time.Now()))
	_, err := boltstore.Open(boltstore.Config{Path: path, LockTimeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("Open of an open file: got %v, want an error that names the file and the reason", err)
	}
	if _, err := s.Load(t.Context(), fetch.Key{Origin: example(1)}); err != nil {
		t.Errorf("Load by the process that has the file open: %v", err)
	}
}

// A file of 0.1.0 has the former format and can be read. A reader leaves it unchanged; a gateway
// converts it, so that 0.1.0 then refuses the file.
// format, so that 0.1.0 refuses the file.
func TestOpen_FormerFormat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	filled(t, path, 1)
	change(t, path, func(tx *bolt.Tx) error { return setFormat(tx, 3) })
	for _, c := range []struct {
		readOnly bool
		format   byte
	}{{true, 3}, {false, 4}} {
		s, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: c.readOnly})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context(), fetch.Key{Origin: example(0)}); err != nil {
			t.Errorf("read only %t: Load: %v", c.readOnly, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		change(t, path, func(tx *bolt.Tx) error {
			if got := tx.Bucket([]byte("crawlgate")).Get([]byte("format")); !bytes.Equal(got, []byte{0, 0, 0, c.format}) {
				t.Errorf("read only %t: format %x, want %d", c.readOnly, got, c.format)
			}
			return nil
		})
	}
}

// All later releases must be able to read the present format.
func TestOpen_FormatIsPinned(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	filled(t, path, 1)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		if got := tx.Bucket([]byte("crawlgate")).Get([]byte("format")); !bytes.Equal(got, []byte{0, 0, 0, 4}) {
			t.Errorf("format = %x, want 4", got)
		}
		item := tx.Bucket([]byte("origins")).Get([]byte("https://n0.example"))
		sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(item[:len(item)-4], crc32.MakeTable(crc32.Castagnoli)))
		if !bytes.HasPrefix(item[8:], []byte(`{"record":{"origin":"https://n0.example","state":"rules","status":200,"sha256":"`)) ||
			!bytes.Contains(item, []byte(`,"history":[{"state":"rules","status":200,"sha256":"`)) || !bytes.HasSuffix(item, sum) {
			t.Errorf("item %q has an unexpected form", item)
		}
		key, text := tx.Bucket([]byte("texts")).Cursor().First()
		const want = "User-agent: *\nDisallow: /0\n"
		if len(key) != 32 || text[0] != 0 || !bytes.HasPrefix(text[9:], []byte("\x28\xb5\x2f\xfd")) || !bytes.HasSuffix(text, []byte(want)) {
			t.Errorf("text %x has an unexpected form: %q", key, text)
		}
		size := tx.Bucket([]byte("uses")).Get(append(bytes.Clone(text[1:9]), key...))
		stored := tx.Bucket([]byte("crawlgate")).Get([]byte("octets"))
		if n := byte(len(text) - 9); !bytes.Equal(size, []byte{n}) || !bytes.Equal(stored, []byte{0, 0, 0, 0, 0, 0, 0, n}) {
			t.Errorf("size %x, stored %x; want %d", size, stored, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// With damage anywhere in the file, the store gives an error, no record or the right record, but
// never a wrong one, and does not crash.
func TestStore_Damage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	all := filled(t, path, 300)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(2, 3))
	opened, lost := 0, 0
	for round := range 40 {
		damaged := bytes.Clone(whole)
		for range 1 + rnd.IntN(40) {
			damaged[rnd.IntN(len(damaged))] ^= byte(1 + rnd.IntN(255))
		}
		at := filepath.Join(t.TempDir(), fmt.Sprint(round))
		write(t, at, damaged)
		s, err := boltstore.Open(boltstore.Config{Path: at})
		if err != nil {
			continue
		}
		opened++
		for _, r := range all {
			got, err := s.Load(t.Context(), r.Key())
			switch {
			case err != nil:
				lost++
			case !storetest.Equal(got, r):
				t.Fatalf("round %d: loaded a wrong record %+v", round, got)
			}
		}
		_, _ = s.List(t.Context(), "", 0)
		_ = s.Save(t.Context(), storetest.Rules(example(1), "new", time.Now()))
		_ = s.Close()
	}
	if opened == 0 || lost == 0 {
		t.Errorf("%d damaged files were opened and %d records were lost, want some of both", opened, lost)
	}
}

// Truncating the open file does not crash the gateway.
func TestStore_CutWhileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.db")
	all := filled(t, path, 2000)
	s := open(t, boltstore.Config{Path: path})
	cut(t, path, 0)
	failed := 0
	for _, r := range all {
		if _, err := s.Load(t.Context(), r.Key()); err != nil {
			failed++
			if !errors.Is(err, robotscache.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v, want ErrCorrupt with the path", err)
			}
		}
	}
	if failed == 0 {
		t.Error("no call reported the truncated file")
	}
}

func write(tb testing.TB, path string, data []byte) {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// used returns how much of the file is in use: bbolt allocates more in advance.
func used(tb testing.TB, path string) int64 {
	tb.Helper()
	var n int64
	change(tb, path, func(tx *bolt.Tx) error {
		n = tx.Size()
		return nil
	})
	return n
}

func cut(tb testing.TB, path string, size int64) {
	tb.Helper()
	if err := os.Truncate(path, size); err != nil {
		tb.Fatal(err)
	}
}

func patch(tb testing.TB, path string, at int64, data []byte) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
}

func change(tb testing.TB, path string, f func(*bolt.Tx) error) {
	tb.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(db.Update(f), db.Close()); err != nil {
		tb.Fatal(err)
	}
}

func setFormat(tx *bolt.Tx, n uint32) error {
	return tx.Bucket([]byte("crawlgate")).Put([]byte("format"), binary.BigEndian.AppendUint32(nil, n))
}
