package boltstore_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

// Environment variables for a child of TestStore_SurvivesKill: the file and the number of the first
// record to save.
const (
	childPath = "BOLTSTORE_TEST_CHILD_PATH"
	childFrom = "BOLTSTORE_TEST_CHILD_FROM"
	// killRounds is the variable with the number of kills, for a long run.
	killRounds = "CRAWLGATE_KILL_ROUNDS"
)

// batch is the number of records per save.
const batch = 17

// written returns the record with the given number: a hundred origins alternate, so that records,
// histories and shared texts keep changing.
func written(n int) fetch.Record {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Minute)
	text := fmt.Sprintf("# %d\n%s", n/7, strings.Repeat("Disallow: /x\n", n%400))
	return storetest.Rules(example(n%100), text, at)
}

// childMain is the main function of a child: it saves, and reports each acknowledged save, until it
// is killed. It reports whether the process is a child.
func childMain() bool {
	path := os.Getenv(childPath)
	if path == "" {
		return false
	}
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	s, err := boltstore.Open(boltstore.Config{Path: path})
	if err != nil {
		fail(err)
	}
	fmt.Println("open")
	from, err := strconv.Atoi(os.Getenv(childFrom))
	if err != nil {
		fail(err)
	}
	for n := from; ; n += batch {
		var records []fetch.Record
		for i := range batch {
			records = append(records, written(n+i))
		}
		if err := s.Save(context.Background(), records...); err != nil {
			fail(err)
		}
		fmt.Println("acknowledged", n+batch-1)
	}
}

// Whenever the process is killed, the file can be opened and has every acknowledged record, and all
// or none of the call after it.
func TestStore_SurvivesKill(t *testing.T) {
	t.Parallel()
	rounds := 12
	if v := os.Getenv(killRounds); v != "" {
		var err error
		if rounds, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "robots.db")
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	next := 0
	for round := range rounds {
		acknowledged := killedChild(t, path, next, time.Duration(rnd.Int64N(int64(300*time.Millisecond))))
		s, err := boltstore.Open(boltstore.Config{Path: path})
		if err != nil {
			t.Fatalf("round %d: opening the file: %v", round, err)
		}
		last := lastWritten(t, s)
		if last != acknowledged && last != acknowledged+batch {
			t.Errorf("round %d: %d was acknowledged, but %d is the last in the file", round, acknowledged, last)
		}
		verify(t, s, last)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		next = last + 1
	}
	t.Logf("%d kills, %d records written", rounds, next)
}

// killedChild starts a child, kills it, and returns the last acknowledged number.
func killedChild(t *testing.T, path string, from int, after time.Duration) (acknowledged int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childPath+"="+path, fmt.Sprintf("%s=%d", childFrom, from))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // ends a child that hangs
	defer timer.Stop()
	acknowledged = from - 1
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		what, n, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "open":
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		case "acknowledged":
			acknowledged, err = strconv.Atoi(n)
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("unexpected output of the child: %s", lines.Text())
		}
	}
	_ = cmd.Wait()
	return acknowledged
}

// lastWritten finds the newest record in the file, or -1.
func lastWritten(t *testing.T, s *boltstore.Store) int {
	t.Helper()
	records, err := s.List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, r := range records {
		n := int(r.FetchedAt.Sub(written(0).FetchedAt) / time.Minute)
		last = max(last, n)
	}
	return last
}

// verify checks the content of the file after the given last save.
func verify(t *testing.T, s *boltstore.Store, last int) {
	t.Helper()
	for n := max(last-99, 0); n <= last; n++ {
		want := written(n)
		got, err := s.Load(t.Context(), want.Key())
		if err != nil || !storetest.Equal(got, want) {
			t.Fatalf("record %d of %d = %+v, %v", n, last, got, err)
		}
		history, err := s.History(t.Context(), want.Key())
		if err != nil || len(history) == 0 || history[0].SHA256 != want.SHA256 {
			t.Fatalf("history of record %d = %+v, %v", n, history, err)
		}
		for _, v := range history {
			if _, err := s.Body(t.Context(), v.SHA256); err != nil {
				t.Fatalf("text of a version of record %d: %v", n, err)
			}
		}
	}
}
