package redisstore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/redisstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

// TestStore_Cluster checks that the store works in a cluster, where scripts may only use keys of
// one slot, and that no node has much more than its share of keys and calls.
func TestStore_Cluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	nodes, url := cluster.Nodes[:3], cluster.URL()
	media := 0
	storetest.Run(t, func(testing.TB) storetest.Medium {
		media++
		cfg := config{URL: url, Prefix: fmt.Sprintf("test%d", media), Config: redisstore.Config{
			Versions: 4, Retention: robotscache.Retention{For: 24 * time.Hour}, Timeout: 5 * time.Second,
		}}
		return storetest.Medium{
			Open:     func(tb testing.TB) robotscache.Store { tb.Helper(); return open(tb, cfg) },
			Versions: 4, Retained: 24 * time.Hour,
		}
	})

	before := make([][2]int, len(nodes))
	for i, node := range nodes {
		before[i] = load(t, node)
	}
	st := open(t, config{URL: url, Config: redisstore.Config{Timeout: 5 * time.Second}})
	const origins = 10_000
	for from := 0; from < origins; from += 100 {
		var records []fetch.Record
		for i := from; i < from+100; i++ {
			records = append(records, storetest.Rules(example(i), fmt.Sprint("text ", i), time.Now()))
		}
		if err := st.Save(t.Context(), records...); err != nil {
			t.Fatal(err)
		}
	}
	var most, sum [2]int
	for i, node := range nodes {
		for j, n := range load(t, node) {
			n -= before[i][j]
			most[j], sum[j] = max(most[j], n), sum[j]+n
		}
	}
	for j, what := range []string{"keys", "scripts"} {
		mean := float64(sum[j]) / float64(len(nodes))
		t.Logf("the busiest node has %.3f of the mean of %d %s", float64(most[j])/mean, sum[j], what)
		if sum[j] < origins || float64(most[j]) > 1.3*mean {
			t.Errorf("%s: one node has %d of %d, want its share", what, most[j], sum[j])
		}
	}
}

// load returns the number of keys of a server, and the number of scripts that it has run.
func load(tb testing.TB, s *redistest.Server) [2]int {
	tb.Helper()
	keys, err := strconv.Atoi(strings.Trim(s.Say("DBSIZE"), ":\r\n"))
	if err != nil {
		tb.Fatal(err)
	}
	_, after, _ := strings.Cut(s.Say("INFO commandstats"), "cmdstat_eval:calls=")
	count, _, _ := strings.Cut(after, ",")
	scripts, _ := strconv.Atoi(count)
	return [2]int{keys, scripts}
}

// TestSpread checks that with records of a million origins and their texts, no node of a cluster
// has more than 1.3 times the mean, if each node has the same number of slots.
func TestSpread(t *testing.T) {
	t.Parallel()
	const origins = 1_000_000
	records, texts := make([]int, redistest.Slots), make([]int, redistest.Slots)
	for i := range origins {
		name := example(i).String()
		records[redistest.Slot(fmt.Sprintf("{%03o}", crc32.ChecksumIEEE([]byte(name))%256))]++ // see TestKeys
		texts[redistest.Slot(fmt.Sprintf("crawlgate:robots:3:t:%x", sha256.Sum256([]byte(name))))]++
	}
	for what, slots := range map[string][]int{"records": records, "texts": texts} {
		for _, nodes := range []int{3, 12, 48, 100} {
			counts := make([]int, nodes)
			for slot, n := range slots {
				counts[slot*nodes/len(slots)] += n
			}
			share := float64(slices.Max(counts)) * float64(nodes) / origins
			t.Logf("%s: the busiest of %d nodes has %.3f of the mean", what, nodes, share)
			if share > 1.3 {
				t.Errorf("%s: the busiest of %d nodes has %.3f of the mean, want at most 1.3", what, nodes, share)
			}
		}
	}
}

// TestKeys checks that a record, its history, its lease and its place in the index have the tag of
// their bucket, which TestSpread uses. Names of keys must not change, or an upgrade would fetch
// each robots.txt again.
func TestKeys(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	c := srv.client(t)
	st := srv.open(t, config{Prefix: "acme"})
	r := storetest.Rules(example(1), "one", time.Now())
	if err := st.Save(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, held, err := st.Lease(t.Context(), r.Key(), time.Minute); !held || err != nil {
		t.Fatalf("Lease = %v, %v", held, err)
	}
	keys, err := srv.do(t, c.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	bucket := fmt.Sprintf("acme:robots:3:{%03o}:", crc32.ChecksumIEEE([]byte(r.Key().String()))%256)
	want := []string{
		bucket + "h:https://n1.example", bucket + "index", bucket + "l:https://n1.example", bucket + "r:https://n1.example", bucket + "seen",
		fmt.Sprintf("acme:robots:3:t:%x", r.SHA256),
	}
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

// TestFormer checks that values of the former format are read until a new value is saved. The store
// never writes that format, and a purge also deletes it.
func TestFormer(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	c := srv.client(t)
	other := srv.open(t, config{Prefix: "other"})
	now := time.Now().UTC()
	first := storetest.Rules(example(1), "first", now.Add(-48*time.Hour))
	r := storetest.Rules(example(1), "second", now.Add(-25*time.Hour))
	if err := other.Save(t.Context(), first, r); err != nil {
		t.Fatal(err)
	}
	// The values are the same, so these are what an older gateway saves.
	keys, err := srv.do(t, c.B().Keys().Pattern("other:*").Build()).AsStrSlice()
	if err != nil || len(keys) != 6 {
		t.Fatalf("keys = %q, %v, want 6", keys, err)
	}
	for _, key := range keys {
		_, name, _ := strings.Cut(strings.TrimPrefix(key, "other:robots:3:"), "}:")
		if strings.Contains(key, ":t:") {
			name = key[strings.Index(key, "t:"):]
		}
		if err := srv.do(t, c.B().Rename().Key(key).Newkey("{acme}:robots:2:"+name).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	st := srv.open(t, config{Prefix: "acme"})
	history := func(want ...fetch.Record) {
		t.Helper()
		got, err := st.History(t.Context(), r.Key())
		if err != nil || len(got) != len(want) {
			t.Fatalf("history %+v, %v; want %d", got, err, len(want))
		}
		for i, v := range got {
			text, err := st.Body(t.Context(), v.SHA256)
			if err != nil || string(text) != string(want[i].Body) || v.KeptUntil.Before(now) {
				t.Errorf("version %d = %+v with text %q, %v", i, v, text, err)
			}
		}
	}
	if got, err := st.Load(t.Context(), r.Key()); err != nil || !storetest.Equal(got, r) {
		t.Errorf("Load = %+v, %v", got, err)
	}
	history(r, first)
	if list, err := st.List(t.Context(), "", 0); err != nil || len(list) != 1 || list[0].Key() != r.Key() {
		t.Errorf("listed %+v, %v; want the former record: a purge looks there for those in an agent's name", list, err)
	}
	again := storetest.Rules(example(1), "second", now)
	third := storetest.Rules(example(1), "third", now.Add(time.Second))
	if err := st.Save(t.Context(), again, third); err != nil {
		t.Fatal(err)
	}
	history(third, again, first)
	if got, err := st.Load(t.Context(), r.Key()); err != nil || !storetest.Equal(got, third) {
		t.Errorf("Load = %+v, %v", got, err)
	}
	if n, err := srv.do(t, c.B().Llen().Key("{acme}:robots:2:h:"+r.Key().String()).Build()).AsInt64(); n != 2 || err != nil {
		t.Errorf("the former history has %d versions, %v, want 2", n, err)
	}
	if err := st.Delete(t.Context(), r.Key()); err != nil {
		t.Fatal(err)
	}
	if got, err := st.Load(t.Context(), r.Key()); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("Load after Delete = %+v, %v", got, err)
	}
	if list, err := st.List(t.Context(), "", 0); err != nil || len(list) != 0 {
		t.Errorf("List after Delete = %+v, %v", list, err)
	}
}

// TestStore_Rights checks that the rights in docs/fleet.md suffice for the user of the store.
// Without rights to keys of the former format, the store treats them as missing.
func TestStore_Rights(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "--databases", "64")
	rights := testdocs.Line(t, "fleet.md", "ACL SETUSER store ")
	c := srv.client(t)
	for user, rights := range map[string]string{"store": rights, "new": strings.ReplaceAll(rights, "~{acme}:robots:2:*", "")} {
		if err := c.Do(t.Context(), c.B().Arbitrary("ACL", "SETUSER", user).Args(strings.Fields(rights)...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		db := map[string]int{"store": 0, "new": 30}[user]
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(testing.TB) storetest.Medium {
				db++
				url := fmt.Sprintf("redis://%s:PASSWORD@127.0.0.1:%d/%d", user, srv.port, db)
				return storetest.Medium{
					Open: func(tb testing.TB) robotscache.Store {
						tb.Helper()
						return srv.open(tb, config{URL: url, Prefix: "acme", Config: redisstore.Config{
							Versions: 4, Retention: robotscache.Retention{For: 24 * time.Hour}, Timeout: 5 * time.Second,
						}})
					},
					Versions: 4, Retained: 24 * time.Hour,
				}
			})
		})
	}
}
