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

// Environment of a child of TestStore_SurvivesKill: the file, and the number of
// the first record to save.
const (
	childPath = "BOLTSTORE_TEST_CHILD_PATH"
	childFrom = "BOLTSTORE_TEST_CHILD_FROM"
	// killRounds sets the number of kills, for a long run.
	killRounds = "CRAWLGATE_KILL_ROUNDS"
)

// batch is how many records a child saves in one call.
const batch = 17

// written returns the record with the given number: a hundred origins take turns,
// so that records, histories and shared texts change all the time.
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

// Whenever the process is killed, the file opens and holds every record that was
// acknowledged, and of the call after it all or none.
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
			t.Fatalf("round %d: %v", round, err)
		}
		last := lastWritten(t, s)
		if last != acknowledged && last != acknowledged+batch {
			t.Errorf("round %d: %d was acknowledged, %d is the last in the file", round, acknowledged, last)
		}
		verify(t, s, last)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		next = last + 1
	}
	t.Logf("%d kills, %d records written", rounds, next)
}

// killedChild starts a child, kills it, and returns the last number that it had an
// acknowledgement for.
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
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // a child that hangs
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
			t.Errorf("the child says: %s", lines.Text())
		}
	}
	_ = cmd.Wait() // killed
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

// verify checks the content of the file after the given last write.
func verify(t *testing.T, s *boltstore.Store, last int) {
	t.Helper()
	for n := max(last-99, 0); n <= last; n++ {
		want := written(n)
		got, err := s.Load(t.Context(), want.Key())
		if err != nil || !storetest.Equal(got, want) {
			t.Fatalf("record %d of %d: %+v, %v", n, last, got, err)
		}
		history, err := s.History(t.Context(), want.Key())
		if err != nil || len(history) == 0 || history[0].SHA256 != want.SHA256 {
			t.Fatalf("history at %d: %+v, %v", n, history, err)
		}
		for _, v := range history {
			if _, err := s.Body(t.Context(), v.SHA256); err != nil {
				t.Fatalf("text of a version at %d: %v", n, err)
			}
		}
	}
}
