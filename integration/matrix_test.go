package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// matrixLog is one log of the matrix: how it is written, and who puts its files aside.
type matrixLog struct {
	dir      string
	format   string // the block of its encoder
	rotation string
	sealed   bool
}

// The options that the matrix is made of. Each log has one of each.
var (
	matrixTimes = []string{
		"", "time_format unix_milli_float", "time_format unix_nano", "time_format iso8601", "time_format rfc3339", "time_format rfc3339_nano",
		"time_format wall", "time_format wall_milli", "time_format wall_nano", "time_format common_log", "time_format \"02 Jan 06 15:04 MST\"",
		"time_format rfc3339\ntime_local", "time_format wall_nano\ntime_local", "time_key at", "time_key \"\"",
	}
	matrixDurations = []string{"", "duration_format string", "duration_format ms", "duration_format ns"}
	// matrixEncoders have the options of the encoder in the place of %s.
	matrixEncoders = []string{
		"format json {\n%s\n}",
		"format console {\n%s\n}",
		"format filter {\nrequest>uri regexp \\?.* ?REDACTED\nwrap json {\n%s\n}\n}",
		"format filter {\nrequest>uri query {\ndelete token\nhash q\nreplace page 1\n}\nrequest>remote_ip ip_mask 16 32\nwrap json {\n%s\n}\n}",
		"format filter {\nrequest>uri hash\nrequest>headers delete\nresp_headers delete\nwrap json {\n%s\n}\n}",
		"format filter {\nrequest>uri delete\nrequest>method delete\nwrap console {\n%s\n}\n}",
		"format filter {\nrequest>uri regexp [^/]*$ REDACTED\nstatus replace x\nduration replace y\nwrap json {\n%s\n}\n}",
		"format filter {\nduration rename took\nrequest>headers>Cookie cookie {\ndelete session\n}\nrequest>remote_ip rename ip\nwrap json {\n%s\n}\n}",
		"format journald {\nwrap json {\n%s\n}\n}",
		"format append {\nhost gw1\nwrap json {\n%s\n}\n}",
		"format json {\nmessage_key m\nlevel_key l\nname_key \"\"\nlevel_format color\n%s\n}",
	}
	matrixRotations = []string{"none", "size", "time", "rename", "copytruncate"}
)

// matrix gives the logs of one gateway: with few, each option is there and options meet in many ways; with all, each
// time meets each encoder and each rotation.
func matrix(t *testing.T, all bool) (runs [][]*matrixLog) {
	t.Helper()
	add := func(time, encoder, rotation, n int) {
		if len(runs) == 0 || len(runs[len(runs)-1]) == 30 {
			runs = append(runs, nil)
		}
		l := &matrixLog{dir: tempDir(t), rotation: matrixRotations[rotation]}
		l.format = fmt.Sprintf(matrixEncoders[encoder], matrixTimes[time]+"\n"+matrixDurations[n%len(matrixDurations)])
		// copytruncate can take lines, which a seal shows.
		l.sealed = n%2 == 1 && l.rotation != "copytruncate"
		runs[len(runs)-1] = append(runs[len(runs)-1], l)
	}
	if !all {
		for n := range 2 * len(matrixTimes) {
			add(n%len(matrixTimes), (n+n/len(matrixTimes)*3)%len(matrixEncoders), (n+n/len(matrixTimes))%len(matrixRotations), n+n/4)
		}
		return runs
	}
	n := 0
	for time := range matrixTimes {
		for encoder := range matrixEncoders {
			for rotation := range matrixRotations {
				add(time, encoder, rotation, n)
				n++
			}
		}
	}
	return runs
}

// config is that of the log with a number.
func (l *matrixLog) config(n int) string {
	rolls := map[string]string{
		"size": "roll_size 1MiB\nroll_keep 1000\nroll_compression zstd", "time": "roll_interval 1s\nroll_keep 1000", "": "roll_disabled",
	}
	roll := rolls[l.rotation]
	if roll == "" {
		roll = rolls[""]
	}
	output := fmt.Sprintf("file %s {\n%s\n}", filepath.Join(l.dir, "access.log"), roll)
	if l.sealed {
		output = fmt.Sprintf("robots_evidence {\nname m%d\nevery 100ms 100\n%s\n}", n, output)
	}
	return fmt.Sprintf("log m%d {\noutput %s\n%s\ninclude http.log.access\n}\n", n, output, l.format)
}

// rotate puts the log aside as logrotate does: .1 is packed to .2.gz by and by.
func (l *matrixLog) rotate() error {
	if l.rotation != "rename" && l.rotation != "copytruncate" {
		return nil
	}
	live := filepath.Join(l.dir, "access.log")
	text, err := os.ReadFile(live + ".1")
	if err == nil {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(text)
		err = errors.Join(z.Close(), os.WriteFile(live+".2.gz", b.Bytes(), 0o600))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if l.rotation == "rename" {
		return os.Rename(live, live+".1")
	}
	if text, err = os.ReadFile(live); err == nil {
		err = errors.Join(os.WriteFile(live+".1", text, 0o600), os.Truncate(live, 0))
	}
	return err
}

// crawling is how many clients ask at a time.
const crawling = 8

// matrixRun is a crawl that several logs tell of.
type matrixRun struct {
	t        *testing.T
	logs     []*matrixLog
	g        *gateway
	site     *testorigin.Site // its rules change
	absent   *testorigin.Site
	broken   string       // a site whose answers break off
	until    time.Time    // the end of an exception
	answered atomic.Int64 // requests
	full     int64        // of these, while the disk was full
	totals   struct{ lines, torn, vague, sealed int64 }
	pace     time.Duration // between the requests of a client
}

func (m *matrixRun) config(site string) gatewayConfig {
	var global strings.Builder
	for n, l := range m.logs {
		global.WriteString(l.config(n))
	}
	return gatewayConfig{
		Env: []string{"TZ=Asia/Kolkata"}, Engine: "gateway gw1.acme.example\npace {\nrate off\nconcurrency 64\n}", Global: global.String(),
		Site: fmt.Sprintf("except %s {\npath /deep\nuntil %s\nreason \"ticket 7\"\n}\n%s", m.site.Origin().Host, m.until.Format(time.RFC3339), site),
	}
}

// crawl has one client ask until the context ends.
func (m *matrixRun) crawl(ctx context.Context, n int) {
	client := m.g.client("somebot")
	script := rand.New(rand.NewPCG(uint64(n), 1))
	long := "?token=s3cret&q=" + strings.Repeat("x", 900) // so that files fill
	for i := 0; ctx.Err() == nil; i++ {
		url := []string{
			m.site.URL("/page" + long), m.site.URL("/private/x?q=2&page=1"), m.site.URL("/deep/a.pdf"), m.absent.URL("/a%20b?z=1&a=2" + long),
			m.site.URL("/find?b&a"), m.broken + "/half", "http://denied.invalid/x", m.site.URL("/robots.txt"), m.site.URL("/käse?ö=1"),
		}[script.IntN(9)]
		if _, err := tryGet(ctx, client, url); err == nil {
			m.answered.Add(1)
		} else {
			pause(ctx, 20*time.Millisecond) // the gateway may be away
		}
		pause(ctx, m.pace)
	}
}

func (m *matrixRun) robots(args ...string) {
	m.t.Helper()
	if out, err := m.g.robots(args[0], args[1:]...); err != nil {
		m.t.Errorf("robots %q: %v: %s", args, err, out)
	}
}

// fullDisk lets no file grow for a while, until a line was cut.
func (m *matrixRun) fullDisk(ctx context.Context) {
	m.t.Helper()
	pid, was := m.g.cmd.Process.Pid, unix.Rlimit{}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
		m.t.Fatal(err)
	}
	for range 20 {
		var smallest string
		var size int64
		for _, l := range m.logs {
			name := filepath.Join(l.dir, "access.log")
			if info, err := os.Stat(name); err == nil && !l.sealed && (smallest == "" || info.Size() < size) {
				smallest, size = name, info.Size()
			}
		}
		full, before := unix.Rlimit{Cur: uint64(size) + 1500, Max: was.Max}, m.answered.Load()
		if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &full, nil); err != nil {
			m.t.Fatal(err)
		}
		pause(ctx, 300*time.Millisecond)
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

// events is what happens to a gateway in its life, each after a while.
func (m *matrixRun) events(ctx context.Context, while time.Duration) {
	m.t.Helper()
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	rotate := func() {
		for _, l := range m.logs {
			must(l.rotate())
		}
	}
	for _, event := range []func(){
		func() {
			m.site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /page\nDisallow: /*?q=\n"))
			m.robots("refresh", m.site.Origin().String())
		},
		rotate,
		func() { must(m.g.reload(m.config("deny denied.invalid"))) },
		func() {
			m.site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\nDisallow: /deep/*.pdf$\n"))
			m.robots("purge", m.site.Origin().String(), m.absent.Origin().String())
		},
		func() {
			m.g.kill()
			must(m.g.start(m.config("deny denied.invalid")))
		},
		rotate,
		func() { must(m.g.reload(m.config("mode report\ndeny denied.invalid"))) },
		func() { m.fullDisk(ctx) },
		func() {
			m.g.stop()
			must(m.g.start(m.config("deny denied.invalid")))
		},
		func() {},
	} {
		pause(ctx, while)
		event()
	}
}

// TestMatrixOfHonestLogs crawls through a gateway whose life has all that a gateway's can have, and which writes
// logs in all forms that Caddy knows. Of none there is anything to find, and no line is left out in silence.
// CRAWLGATE_AUDIT_REQUESTS asks for the whole matrix, with about so many lines a log.
func TestMatrixOfHonestLogs(t *testing.T) {
	loadsMachine(t)
	all := os.Getenv("CRAWLGATE_AUDIT_REQUESTS") != ""
	while := 400 * time.Millisecond
	if all {
		while = time.Duration(auditRequests(t)) * time.Millisecond / 2000 // ten events, some 200 requests a second
	}
	for i, logs := range matrix(t, all) {
		crawlMatrix(t, logs, i, max(while, 400*time.Millisecond))
	}
}

func crawlMatrix(t *testing.T, logs []*matrixLog, i int, while time.Duration) {
	t.Helper()
	origins := testorigin.Start(t, testorigin.Config{})
	m := &matrixRun{t: t, logs: logs, site: origins.Site(t, testorigin.SiteConfig{}), absent: origins.Site(t, testorigin.SiteConfig{}), pace: 20 * time.Millisecond}
	m.site.SetRobots(testorigin.OK(rules + "Disallow: /find?b\n"))
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
	m.g = startGateway(t, m.config(""))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for n := range crawling {
		clients.Go(func() { m.crawl(ctx, n) })
	}
	m.events(ctx, while)
	cancel()
	clients.Wait()
	m.g.stop()
	for _, l := range logs {
		m.check(l)
	}
	t.Logf("run %d: %d answers, %d of them while the disk was full; %d logs: %+v", i, m.answered.Load(), m.full, len(logs), m.totals)
	if m.totals.torn == 0 || m.totals.vague == 0 || m.totals.sealed == 0 {
		t.Error("that is too little")
	}
}

// check audits a log, and reads it as report does.
func (m *matrixRun) check(l *matrixLog) {
	m.t.Helper()
	what := fmt.Sprintf("%s, %s, sealed %t", strings.Join(strings.Fields(l.format), " "), l.rotation, l.sealed)
	args := []string{"--store", m.g.store()}
	if l.sealed {
		args = append(args, "--seal")
	}
	r := audit(m.t, append(args, l.dir)...)
	torn := slices.DeleteFunc(r.errors, func(e string) bool { return strings.Contains(e, `"type":"torn"`) })
	want := 0
	if l.sealed { // the full disk took lines and, of a log that was renamed, the kill the seal of some
		said := len(torn)
		if torn = slices.DeleteFunc(torn, func(e string) bool {
			return strings.Contains(e, "the log could not be written") || l.rotation == "rename" && strings.Contains(e, "the gateway was killed before")
		}); len(torn) < said {
			want = 2
		}
	}
	if r.status != want || len(r.findings) > 0 || len(torn) > 0 {
		m.t.Errorf("%s: status %d, %d findings, errors %.500q, %.1000s", what, r.status, len(r.findings), torn, r.stderr)
		for _, f := range r.findings[:min(len(r.findings), 3)] {
			m.t.Errorf("%s:%d: %s: %s", f.File, f.Line, f.Kind, f.Message)
		}
	}
	// A full disk takes lines, a kill one of each client and, of these, what copytruncate copies no more.
	least := m.answered.Load() - m.full - 3*crawling
	if l.rotation == "copytruncate" {
		least -= 3 * crawling
	}
	if r.totals.Checked < least {
		m.t.Errorf("%s: %d lines of %d answers", what, r.totals.Checked, m.answered.Load())
	}
	m.totals.lines += r.totals.Checked
	m.totals.torn += r.totals.Torn
	for _, n := range r.totals.Vague {
		m.totals.vague += n
	}
	if l.sealed {
		m.totals.sealed++
	}
	if out, err := exec.CommandContext(m.t.Context(), binary, "robots", "report", "--format", "json", l.dir).CombinedOutput(); err != nil {
		m.t.Errorf("%s: report: %v: %.500s", what, err, out)
	}
}
