//go:build slow

package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// crawling is the number of clients that crawl at once.
const crawling = 8

// matrixTotals are the totals of all logs.
type matrixTotals struct{ answers, lines, torn, lost int64 }

// matrixRun is one crawl that several logs record.
type matrixRun struct {
	t        *testing.T
	logs     []*matrixLog
	g        *rig.Gateway
	site     *testorigin.Site // its rules change
	absent   *testorigin.Site
	broken   string            // a site whose answers break off
	until    time.Time         // the end of an exception
	redis    *redistest.Server // of store and fleet; nil for none
	answered atomic.Int64      // requests
	failed   atomic.Int64      // requests without an answer: each may have a line
	full     int64             // of those that were answered, while the disk was full
	totals   *matrixTotals
	pace     time.Duration // between the requests of a client
}

func (m *matrixRun) config(site string) rig.Config {
	var global strings.Builder
	for n, l := range m.logs {
		global.WriteString(l.config(n))
	}
	c := rig.Config{
		Env: []string{"TZ=Asia/Kolkata"}, Engine: "gateway gw1.acme.example\npace {\nrate off\nconcurrency 64\n}", Global: global.String(),
		Site: fmt.Sprintf("except %s {\npath /deep\nuntil %s\nreason \"ticket 7\"\n}\n%s", m.site.Origin().Host, m.until.Format(time.RFC3339), site),
	}
	if m.redis != nil {
		c.Engine += "\nstore redis " + m.redis.URL()
	}
	for _, l := range m.logs {
		switch l.writer {
		case "stdout":
			c.Stdout = l.live()
		case "stderr":
			c.Stderr = l.live()
		}
	}
	return c
}

// crawl sends the requests of one client until ctx ends.
func (m *matrixRun) crawl(ctx context.Context, n int) {
	client := m.g.Client("somebot")
	script := rand.New(rand.NewPCG(uint64(n), 1))
	long := "?token=s3cret&q=" + strings.Repeat("x", 900) // so that files fill
	for i := 0; ctx.Err() == nil; i++ {
		url := []string{
			m.site.URL("/page" + long), m.site.URL("/private/x?q=2&page=1"), m.site.URL("/deep/a.pdf"), m.absent.URL("/a%20b?z=1&a=2" + long),
			m.site.URL("/find?b&a"), m.broken + "/half", "http://denied.invalid/x", m.site.URL("/robots.txt"), m.site.URL("/käse?ö=1"),
		}[script.IntN(9)]
		if a, err := rig.TryGet(ctx, client, url); a.Status > 0 {
			m.answered.Add(1)
		} else if err != nil {
			m.failed.Add(1)
			rig.Pause(ctx, 20*time.Millisecond) // the gateway may be down
		}
		rig.Pause(ctx, m.pace)
	}
}

func (m *matrixRun) robots(args ...string) {
	m.t.Helper()
	if out, err := m.g.Robots(args[0], args[1:]...); err != nil {
		m.t.Errorf("robots %q: %v: %s", args, err, out)
	}
}

// fullDisk keeps all files from growing until a line was cut.
func (m *matrixRun) fullDisk(ctx context.Context) {
	m.t.Helper()
	pid, was := m.g.Cmd.Process.Pid, unix.Rlimit{}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
		m.t.Fatal(err)
	}
	files := []string{m.g.AccessLog()}
	for _, l := range m.logs {
		if l.writer == "file" && l.rotation != "rename" { // after a rename, the gateway does not write that file
			files = append(files, l.live())
		}
	}
	for range 20 {
		var smallest string
		var size int64
		for _, name := range files {
			if info, err := os.Stat(name); err == nil && (smallest == "" || info.Size() < size) {
				smallest, size = name, info.Size()
			}
		}
		full, before := unix.Rlimit{Cur: uint64(size) + 1500, Max: was.Max}, m.answered.Load()
		if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &full, nil); err != nil {
			m.t.Fatal(err)
		}
		rig.Pause(ctx, 300*time.Millisecond)
		text, err := os.ReadFile(smallest)
		if err := errors.Join(err, unix.Prlimit(pid, unix.RLIMIT_FSIZE, &was, nil)); err != nil {
			m.t.Fatal(err)
		}
		m.full += m.answered.Load() - before
		if len(text) > 0 && text[len(text)-1] != '\n' {
			return
		}
	}
	m.t.Error("no line was cut")
}

// events makes the events in a gateway's life happen, each after a while.
func (m *matrixRun) events(ctx context.Context, while time.Duration) {
	m.t.Helper()
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	rotate := func(ways ...string) {
		for _, l := range m.logs {
			for _, way := range ways {
				must(l.rotate(way))
			}
		}
	}
	for _, event := range []func(){
		func() {
			m.site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /page\nDisallow: /*?q=\n"))
			m.robots("refresh", m.site.Origin().String())
		},
		func() { rotate("rename", "copytruncate") },
		func() { must(m.g.Reload(m.config("deny denied.invalid"))) },
		func() {
			m.site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\nDisallow: /deep/*.pdf$\n"))
			m.robots("purge", m.site.Origin().String(), m.absent.Origin().String())
		},
		func() {
			m.g.Kill()
			rotate("restart")
			must(m.g.Start(m.config("deny denied.invalid")))
		},
		func() { rotate("rename", "copytruncate") },
		m.redisAway,
		func() { must(m.g.Reload(m.config("mode report\ndeny denied.invalid"))) },
		m.redisBack,
		func() { m.fullDisk(ctx) },
		func() {
			for _, l := range m.logs {
				if l.collector != nil {
					l.collector.hangUp()
				}
			}
		},
		func() {
			m.g.Stop()
			rotate("restart")
			must(m.g.Start(m.config("deny denied.invalid")))
		},
		func() {},
	} {
		rig.Pause(ctx, while)
		event()
	}
}

func (m *matrixRun) redisAway() {
	if m.redis != nil {
		m.redis.Kill()
	}
}

func (m *matrixRun) redisBack() {
	if m.redis != nil {
		m.redis.Start()
	}
}

// TestMatrixOfHonestLogs crawls through a gateway while every possible event happens to it. The
// gateway writes logs in all forms that Caddy supports. The audit must find nothing in any of them
// and must report every line that it does not judge. CRAWLGATE_AUDIT_REQUESTS asks for the whole
// matrix, with about that many lines a log; otherwise two of sixteen gateways run.
func TestMatrixOfHonestLogs(t *testing.T) {
	rig.LoadsMachine(t)
	all := os.Getenv("CRAWLGATE_AUDIT_REQUESTS") != ""
	while, runs := 400*time.Millisecond, matrixRuns()
	if all {
		while = max(while, time.Duration(auditRequests(t))*time.Second/2600) // thirteen events, some 200 requests a second
	} else {
		runs = runs[:2]
	}
	var totals matrixTotals
	for i, rows := range runs {
		t.Run(fmt.Sprint("gateway ", i), func(t *testing.T) { crawlMatrix(t, rows, i, while, &totals) }) //nolint:paralleltest // each takes both CPUs
	}
	if totals.torn == 0 || totals.lost == 0 {
		t.Errorf("totals %+v, want torn and lost lines", totals)
	}
}

func crawlMatrix(t *testing.T, rows []matrixRow, i int, while time.Duration, totals *matrixTotals) {
	t.Helper()
	origins := testorigin.Start(t, testorigin.Config{})
	m := &matrixRun{t: t, site: origins.Site(t, testorigin.SiteConfig{}), absent: origins.Site(t, testorigin.SiteConfig{}), pace: 20 * time.Millisecond, totals: totals}
	for _, row := range rows {
		m.logs = append(m.logs, newMatrixLog(t, row))
	}
	if _, err := exec.LookPath("redis-server"); i%2 == 1 && (err == nil || os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1") {
		m.redis = redistest.Start(t)
	}
	m.site.SetRobots(testorigin.OK(rig.Rules + "Disallow: /find?b\n"))
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "the first part")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer broken.Close()
	m.broken, m.until = broken.URL, time.Now().Add(3*while)
	m.g = rig.New(t, m.config(""))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for n := range crawling {
		clients.Go(func() { m.crawl(ctx, n) })
	}
	m.events(ctx, while)
	cancel()
	clients.Wait()
	m.g.Stop()
	texts := []string{"--store", m.g.Store()}
	if m.redis != nil { // the gateway reports the times without Redis
		if err := m.g.Start(rig.Config{Engine: "store redis " + m.redis.URL()}); err != nil {
			t.Fatal(err)
		}
		texts = []string{"--gateway", "unix/" + m.g.AdminSocket()}
	}
	for _, l := range m.logs {
		m.check(l, texts)
	}
	totals.answers += m.answered.Load()
	t.Logf("run %d: %d answers, %d of them while the disk was full, redis %t; %d logs, all so far %+v", i, m.answered.Load(), m.full, m.redis != nil, len(m.logs), *totals)
}

// matrixLost matches the report of a sealed log about lines that could not be written.
var matrixLost = regexp.MustCompile(`the log could not be written: (\d+) lines are missing here`)

// tellsOfAnother reports whether an error is about a line on standard error in which Caddy reports
// that it could not write another log.
func tellsOfAnother(e string) bool {
	var at struct {
		File string
		Line int
	}
	if json.Unmarshal([]byte(e), &at) != nil {
		return false
	}
	text, err := os.ReadFile(at.File)
	lines := strings.SplitAfter(string(text), "\n")
	return err == nil && at.Line > 0 && at.Line <= len(lines) && strings.Contains(lines[at.Line-1], " write error: ")
}

// incomplete removes the errors that are right for this log from an audit's errors. These are lines
// lost to the full disk and, if another program has renamed the log, last lines that a kill left
// without a signature.
func (m *matrixRun) incomplete(l *matrixLog, all []string) (others []string, lost int64) {
	killed := 0
	for _, e := range all {
		says := matrixLost.FindStringSubmatch(e)
		switch {
		case l.writer == "sealed" && says != nil:
			n, _ := strconv.ParseInt(says[1], 10, 64)
			lost += n
		case l.writer == "sealed" && (l.rotation == "rename" || l.rotation == "restart") && strings.Contains(e, "the gateway was killed before") && killed == 0:
			killed++
		case l.writer == "stderr" && tellsOfAnother(e):
		default:
			others = append(others, e)
		}
	}
	return others, lost
}

// check audits a log and runs report on it.
func (m *matrixRun) check(l *matrixLog, texts []string) {
	m.t.Helper()
	what := fmt.Sprintf("%s, %s, %s", strings.Join(strings.Fields(l.format), " "), l.writer, l.rotation)
	args := slices.Clone(texts)
	if l.writer == "sealed" {
		args = append(args, "--seal")
	}
	r := rig.Audit(m.t, append(args, l.dir)...)
	errs, lost := m.incomplete(l, r.Errors)
	want := 0
	if len(errs) < len(r.Errors) {
		want = 2
	}
	if r.Status != want || len(r.Findings) > 0 || len(errs) > 0 {
		m.t.Errorf("%s: status %d, %d findings, errors %.500q, %.1000s", what, r.Status, len(r.Findings), errs, r.Stderr)
		for _, f := range r.Findings[:min(len(r.Findings), 3)] {
			m.t.Errorf("%s:%d: %s: %s", f.File, f.Line, f.Kind, f.Message)
		}
	}
	// A kill loses the lines of the answers at that time. Some more answers come while the disk
	// fills or empties.
	const few = 3 * crawling
	answered, most := m.answered.Load(), few+lost
	if l.writer == "file" || l.writer == "stdout" {
		most += m.full
	}
	if l.rotation == "copytruncate" || l.writer == "net" { // lines not copied yet, or on their way to the collector
		most += few
	}
	// A lost line about a robots.txt is written again with each request that rests on it, and may
	// be lost again.
	if r.Totals.Checked < answered-most || r.Totals.Checked > answered+m.failed.Load()+few || lost > 2*m.full+few {
		m.t.Errorf("%s: %d lines checked and %d lost for %d answers, %d of them while the disk was full", what, r.Totals.Checked, lost, answered, m.full)
	}
	m.totals.lines += r.Totals.Checked
	m.totals.torn += r.Totals.Torn
	m.totals.lost += lost
	if out, err := exec.CommandContext(m.t.Context(), rig.Binary, "robots", "report", "--format", "json", l.dir).CombinedOutput(); err != nil && (l.writer != "stderr" || want == 0) {
		m.t.Errorf("%s: report: %v: %.500s", what, err, out)
	}
}
