package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/redisstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

func TestMain(m *testing.M) {
	// A rueidis client that is closed while it waits to refresh the topology sleeps on for up to a
	// second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// server is a redis-server that belongs to the test.
type server struct {
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a server on a free port, with its files in a temporary folder.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	path := redistest.Program(tb)
	s := &server{port: freePort(tb), dir: tb.TempDir(), args: args}
	s.start(tb, path)
	tb.Cleanup(func() { s.stop(tb) })
	return s
}

// freePort returns a free port below those that the kernel assigns to connections: it must still be
// free when the server is restarted.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		return port
	}
	tb.Fatal("found no free port")
	return 0
}

func (s *server) start(tb testing.TB, path string) {
	tb.Helper()
	s.cmd = exec.Command(path, append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1",
		"--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "256mb",
	}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "redis-server answers", func() bool {
		c, err := rueidis.NewClient(s.options())
		if err != nil {
			return false
		}
		defer c.Close()
		return c.Do(tb.Context(), c.B().Ping().Build()).Error() == nil
	})
}

func (s *server) stop(tb testing.TB) {
	tb.Helper()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       []string{fmt.Sprintf("127.0.0.1:%d", s.port)},
		ForceSingleClient: true,
		DisableCache:      true,
	}
}

// client returns a plain client, to inspect what the store did.
func (s *server) client(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := rueidis.NewClient(s.options())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// do makes a call in the database of the tests' stores.
func (s *server) do(tb testing.TB, cmd rueidis.Completed) rueidis.RedisResult {
	tb.Helper()
	c := s.client(tb)
	return c.DoMulti(tb.Context(), c.B().Select().Index(3).Build(), cmd)[1]
}

// config has the settings of a store and of its link.
type config struct {
	redisstore.Config
	URL, Prefix string
}

func (s *server) open(tb testing.TB, cfg config) *redisstore.Store {
	tb.Helper()
	cfg.URL = cmp.Or(cfg.URL, fmt.Sprintf("redis://127.0.0.1:%d/3", s.port))
	return open(tb, cfg)
}

func open(tb testing.TB, cfg config) *redisstore.Store {
	tb.Helper()
	l, err := link.New(link.Config{URL: cfg.URL, Prefix: cfg.Prefix})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	cfg.Link = l
	st := redisstore.New(cfg.Config)
	tb.Cleanup(func() { _ = st.Close() })
	return st
}

// eventually waits for an effect of another process.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("did not happen within a minute: %s", what)
		}
	}
}

func example(i int) origin.Origin {
	return origin.Origin{Scheme: "https", Host: fmt.Sprintf("n%d.example", i), Port: 443}
}

func TestStore(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	media := 0
	storetest.Run(t, func(testing.TB) storetest.Medium {
		media++
		prefix := fmt.Sprintf("test%d", media)
		return storetest.Medium{
			Open: func(tb testing.TB) robotscache.Store {
				tb.Helper()
				return srv.open(tb, config{Prefix: prefix, Config: redisstore.Config{
					Versions: 4, Retention: robotscache.Retention{For: 24 * time.Hour}, Timeout: 5 * time.Second,
				}})
			},
			Versions: 4,
			Retained: 24 * time.Hour,
		}
	})
}

// If two gateways fetch at the same time, the later attempt is kept, unless its time comes from a
// wrong clock.
func TestSave_LaterAttemptWins(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	a, b := srv.open(t, config{}), srv.open(t, config{})
	now := time.Now().UTC().Truncate(time.Microsecond)
	save := func(st *redisstore.Store, r fetch.Record) {
		t.Helper()
		if err := st.Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	want := func(r fetch.Record) {
		t.Helper()
		for _, st := range []*redisstore.Store{a, b} {
			if got, err := st.Load(t.Context(), r.Key()); err != nil || !storetest.Equal(got, r) {
				t.Errorf("got %+v, %v; want %+v", got, err, r)
			}
		}
	}
	o := example(1)
	newer, older := storetest.Rules(o, "newer", now), storetest.Rules(o, "older", now.Add(-time.Second))
	save(a, newer)
	save(b, older)
	want(newer)
	// A failure after it is later, although the answer in use is the same.
	failed := storetest.Fail(newer, now.Add(time.Second))
	save(b, failed)
	save(a, newer)
	want(failed)

	future := storetest.Rules(o, "future", now.Add(time.Hour))
	save(a, future)
	want(future)
	save(b, newer)
	want(newer)
}

// Every key in the server expires, and the sets do not keep a member for ever.
func TestStore_Retention(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	const prefix = "test"
	c := srv.client(t)
	do := func(cmd rueidis.Completed) rueidis.RedisResult { t.Helper(); return srv.do(t, cmd) }
	keep := robotscache.Retention{For: 30 * 24 * time.Hour}
	long := srv.open(t, config{Prefix: prefix, Config: redisstore.Config{Retention: keep, Timeout: 5 * time.Second}})
	// They are in one bucket, as the test of the sets needs.
	inBucket := func(i int) origin.Origin { return example([]int{24, 83, 201, 400}[i]) }
	for i := range 3 {
		if err := long.Save(t.Context(), storetest.Rules(inBucket(i), fmt.Sprint(i), time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := do(c.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil || len(keys) != 3*3+2 {
		t.Fatalf("keys = %q, %v, want 11", keys, err)
	}
	for _, key := range keys {
		ttl, err := do(c.B().Pttl().Key(key).Build()).AsInt64()
		want := 60 * 24 * time.Hour
		switch {
		case strings.HasSuffix(key, ":index"), strings.HasSuffix(key, ":seen"):
			want = -time.Millisecond // it does not expire
		case strings.Contains(key, ":t:"):
			want = keep.For + fetch.MaxUse
		}
		short := want - time.Duration(ttl)*time.Millisecond
		if err != nil || !strings.HasPrefix(key, "test:robots:3:") || short < 0 || short > time.Minute {
			t.Errorf("key %q lives %d ms, want %s; %v", key, ttl, want, err)
		}
	}

	// With a second of retention, records are removed, and members of the sets with the next saves.
	short := srv.open(t, config{Prefix: prefix, Config: redisstore.Config{Timeout: 5 * time.Second}})
	short.SetLifetimes(time.Second)
	for i := range 3 {
		if err := short.Save(t.Context(), storetest.Rules(inBucket(i), fmt.Sprint(i), time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "expired origins leave the sets", func() bool {
		if err := short.Save(t.Context(), storetest.Rules(inBucket(3), "kept", time.Now())); err != nil {
			t.Fatal(err)
		}
		n, err := do(c.B().Zcard().Key("test:robots:3:{356}:index").Build()).AsInt64()
		m, err2 := do(c.B().Zcard().Key("test:robots:3:{356}:seen").Build()).AsInt64()
		return err == nil && err2 == nil && n == 1 && m == 1
	})
	if _, err := short.Load(t.Context(), fetch.Key{Origin: inBucket(1)}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Errorf("loading an expired record: got %v, want ErrNotFound", err)
	}
	if records, err := short.List(t.Context(), "", 0); err != nil || len(records) != 1 {
		t.Errorf("List = %+v, %v, want one record", records, err)
	}
}

// A text that the server has changed is an error. A text that it has dropped is not an empty text:
// the record counts as missing. TestStore_Fleets: fleets on one server have records and leases of
// their own, told apart by the database or by the prefix.
func TestStore_Fleets(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	plain := srv.open(t, config{})
	r := storetest.Rules(example(1), "one", time.Now())
	if err := plain.Save(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, held, err := plain.Lease(t.Context(), r.Key(), time.Minute); !held || err != nil {
		t.Fatalf("Lease = %v, %v", held, err)
	}
	for name, cfg := range map[string]config{
		"prefix":   {Prefix: "acme"},
		"database": {URL: fmt.Sprintf("redis://127.0.0.1:%d/4", srv.port)},
	} {
		other := srv.open(t, cfg)
		if _, err := other.Load(t.Context(), r.Key()); !errors.Is(err, robotscache.ErrNotFound) {
			t.Errorf("another %s: Load = %v, want none", name, err)
		}
		if _, held, err := other.Lease(t.Context(), r.Key(), time.Minute); !held || err != nil {
			t.Errorf("another %s: Lease = %v, %v, want one of its own", name, held, err)
		}
	}
}

func TestLoad_TextIsMissing(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	st := srv.open(t, config{Prefix: "test"})
	r := storetest.Rules(example(1), "Disallow: /", time.Now())
	if err := st.Save(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	c := srv.client(t)
	key := fmt.Sprintf("test:robots:3:t:%x", r.SHA256)
	for _, damage := range []struct {
		do   rueidis.Completed
		want error
	}{
		{c.B().Set().Key(key).Value("\x00\x01x").Build(), robotscache.ErrCorrupt}, // another text
		{c.B().Set().Key(key).Value("\x07garbage").Build(), robotscache.ErrCorrupt},
		{c.B().Del().Key(key).Build(), robotscache.ErrNotFound},
	} {
		if err := c.DoMulti(t.Context(), c.B().Select().Index(3).Build(), damage.do)[1].Error(); err != nil {
			t.Fatal(err)
		}
		if got, err := st.Load(t.Context(), r.Key()); !errors.Is(err, damage.want) {
			t.Errorf("loaded %+v, %v; want %v", got, err, damage.want)
		}
	}
}

// While the server is unreachable, calls fail at once, and when it is back they succeed.
func TestStore_ServerGone(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	st := srv.open(t, config{})
	r := storetest.Rules(example(1), "text", time.Now())
	if err := st.Save(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	srv.stop(t)
	wantAway(t, st, r)
	srv.start(t, srv.cmd.Path)
	wantBack(t, st, r)
}

// A server that accepts connections and does not answer counts as unreachable.
func TestStore_ServerHangs(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	st := srv.open(t, config{Config: redisstore.Config{Timeout: 200 * time.Millisecond}})
	r := storetest.Rules(example(1), "text", time.Now())
	// On a busy machine, such a short timeout may also expire.
	eventually(t, "the record is saved", func() bool { return st.Save(t.Context(), r) == nil })
	if err := srv.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wantAway(t, st, r)
	if err := srv.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wantBack(t, st, r)
}

// A server that stops for a while, as happens on a busy machine, does not count as unreachable. The
// caller holds a lease even if its answer was lost at first.
func TestLease_SlowServer(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	st := srv.open(t, config{Config: redisstore.Config{Timeout: 10 * time.Second}})
	if _, err := st.Load(t.Context(), fetch.Key{Origin: example(1)}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Fatal(err) // now there is a connection
	}
	impatient := srv.open(t, config{Config: redisstore.Config{Timeout: 5 * time.Second}})
	if _, err := impatient.Load(t.Context(), fetch.Key{Origin: example(1)}); !errors.Is(err, robotscache.ErrNotFound) {
		t.Fatal(err)
	}
	if err := srv.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(6*time.Second, func() { _ = srv.cmd.Process.Signal(syscall.SIGCONT) })
	lease, acquired, err := impatient.Lease(t.Context(), fetch.Key{Origin: example(1)}, time.Minute)
	if err != nil || !acquired {
		t.Fatalf("Lease = %v, %v", acquired, err)
	}
	if _, other, err := st.Lease(t.Context(), fetch.Key{Origin: example(1)}, time.Minute); other || err != nil {
		t.Errorf("Lease of another gateway = %v, %v, want false", other, err)
	}
	lease.Release()
	if _, other, err := st.Lease(t.Context(), fetch.Key{Origin: example(1)}, time.Minute); !other || err != nil {
		t.Errorf("Lease of another gateway after the release = %v, %v, want true", other, err)
	}
}

// A server that is too slow for the heartbeats of the link, but not for the store, does not count
// as unreachable, even if there were no calls for long.
// answer for long.
func TestStore_SlowForTheLink(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	var delay atomic.Int64
	st := srv.open(t, config{URL: slowed(t, srv.port, &delay), Config: redisstore.Config{Timeout: time.Second}})
	answered := func() bool {
		_, err := st.Load(t.Context(), fetch.Key{Origin: example(1)})
		return errors.Is(err, robotscache.ErrNotFound)
	}
	if !answered() {
		t.Fatal("the server does not answer at first")
	}
	delay.Store(int64(700 * time.Millisecond))
	eventually(t, "the link is down for longer than the store waits", func() bool {
		s := st.LinkState()
		return !s.Up && time.Since(s.Since) > 2*time.Second
	})
	eventually(t, "a call is answered", answered)
	for range 3 {
		if !answered() {
			t.Error("the server counts as unreachable again")
		}
	}
}

// slowed returns a URL by which answers of a server take longer by delay.
func slowed(t *testing.T, port int, delay *atomic.Int64) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go delayed(client, server, delay)
		}
	}()
	return fmt.Sprintf("redis://%s/3", l.Addr())
}

func delayed(to, from net.Conn, delay *atomic.Int64) {
	type part struct {
		at   time.Time
		data []byte
	}
	parts := make(chan part, 1000)
	go func() {
		for p := range parts {
			time.Sleep(time.Until(p.at))
			_, _ = to.Write(p.data)
		}
		_ = to.Close()
	}()
	defer close(parts)
	for {
		data := make([]byte, 1<<16)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		parts <- part{time.Now().Add(time.Duration(delay.Load())), data[:n]}
	}
}

// The gateway may be started first.
func TestStore_ServerComesLater(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	srv.stop(t)
	st := srv.open(t, config{})
	r := storetest.Rules(example(1), "text", time.Now())
	wantAway(t, st, r)
	srv.start(t, srv.cmd.Path)
	wantBack(t, st, r)
}

func wantAway(t *testing.T, st *redisstore.Store, r fetch.Record) {
	t.Helper()
	eventually(t, "the server counts as unreachable", func() bool {
		_, err := st.Load(t.Context(), r.Key())
		if err == nil {
			t.Error("Load while the server is unreachable gives no error")
		}
		return errors.Is(err, robotscache.ErrUnavailable)
	})
	began := time.Now()
	for range 100 {
		if err := st.Save(t.Context(), r); !errors.Is(err, robotscache.ErrUnavailable) {
			t.Errorf("Save while the server is unreachable: got %v, want ErrUnavailable", err)
		}
		if _, acquired, err := st.Lease(t.Context(), r.Key(), time.Minute); acquired || !errors.Is(err, robotscache.ErrUnavailable) {
			t.Errorf("Lease while the server is unreachable = %v, %v, want false and ErrUnavailable", acquired, err)
		}
	}
	// They would take at least 200 ms each if each of them tried to connect.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("200 calls took %v, want at most 10s", took)
	}
}

func wantBack(t *testing.T, st *redisstore.Store, r fetch.Record) {
	t.Helper()
	// Each connection of the client may have to notice that the server is a new one.
	eventually(t, "all calls work again", func() bool {
		if st.Save(t.Context(), r) != nil {
			return false
		}
		got, err := st.Load(t.Context(), r.Key())
		if err == nil && !storetest.Equal(got, r) {
			t.Errorf("Load = %+v", got)
		}
		return err == nil
	})
}

// The error contains the server, but not the password.
func TestStore_ErrorNamesTheServer(t *testing.T) {
	t.Parallel()
	st := (&server{}).open(t, config{URL: "redis://user:secret@127.0.0.1:1/0"})
	_, err := st.Load(t.Context(), fetch.Key{Origin: example(1)})
	if !errors.Is(err, robotscache.ErrUnavailable) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v, want ErrUnavailable with the address and without the password", err)
	}
}

// slowSite is a slow fetcher that counts its calls.
type slowSite struct {
	mu      sync.Mutex
	fetches map[origin.Origin]int
	took    time.Duration
}

func (s *slowSite) Fetch(ctx context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
	s.mu.Lock()
	if s.fetches == nil {
		s.fetches = make(map[origin.Origin]int)
	}
	s.fetches[k.Origin]++
	s.mu.Unlock()
	select {
	case <-time.After(s.took):
		return fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /x\n")}
	case <-ctx.Done():
		return fetch.Outcome{Cause: fetch.CauseCanceled}
	}
}

func (s *slowSite) of(o origin.Origin) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches[o]
}

func (s *slowSite) most() (origins, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.fetches {
		most = max(most, n)
	}
	return len(s.fetches), most
}

// Two gateways with one server make one fetch per origin for two thousand requests to a thousand
// origins.
func TestCluster_OneFetch(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	s := &slowSite{took: 20 * time.Millisecond}
	var caches []*robotscache.Cache
	for range 2 {
		c, err := robotscache.New(robotscache.Config{
			Store: srv.open(t, config{Config: redisstore.Config{Timeout: 5 * time.Second}}), Fetcher: s, MaxSize: 8 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		caches = append(caches, c)
	}
	var wg sync.WaitGroup
	for i := range 1000 {
		for _, c := range caches {
			wg.Go(func() {
				e, _, err := c.Lookup(t.Context(), example(i), robotscache.Asker{})
				if err != nil || e.View(time.Now()).Access != fetch.AccessRules {
					t.Errorf("Lookup of origin %d: %v", i, err)
				}
			})
		}
	}
	wg.Wait()
	if origins, most := s.most(); origins != 1000 || most != 1 {
		t.Errorf("%d origins were fetched, at most %d times each, want 1000 once", origins, most)
	}
}

// While the server goes down and comes back, every answer of the gateways is right, and they share
// again afterwards.
func TestCluster_ServerGoneAndBack(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	s := &slowSite{}
	var caches []*robotscache.Cache
	for range 2 {
		c, err := robotscache.New(robotscache.Config{Store: srv.open(t, config{Config: redisstore.Config{Timeout: 5 * time.Second}}), Fetcher: s, MaxSize: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		caches = append(caches, c)
	}
	ask := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			for _, c := range caches {
				e, _, err := c.Lookup(t.Context(), example(i), robotscache.Asker{})
				if err != nil || e.View(time.Now()).Access != fetch.AccessRules {
					t.Errorf("Lookup of origin %d: %v", i, err)
				}
			}
		}
	}
	ask(0, 50)
	srv.stop(t)
	ask(0, 100)
	srv.start(t, srv.cmd.Path)
	next := 100
	eventually(t, "the gateways share again", func() bool {
		written := true
		for _, c := range caches { // List writes pending records first
			_, err := c.List(t.Context(), "", 1)
			written = written && err == nil
		}
		ask(next, next+1)
		next++
		// A connection from before the outage may have failed a call of this request.
		return written && s.of(example(next-1)) == 1
	})
	before, _ := s.most()
	ask(next, next+50)
	if origins, _ := s.most(); origins != before+50 {
		t.Errorf("%d more origins were fetched, want 50", origins-before)
	}
	for i := next; i < next+50; i++ {
		if n := s.of(example(i)); n != 1 {
			t.Errorf("origin %d was fetched %d times after the server came back, want 1", i, n)
		}
	}
}
