//go:build slow

package audit

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// matrixLog is one log of the matrix: how and where it is written, and who rotates its files.
type matrixLog struct {
	dir       string
	format    string // the block of its encoder
	writer    string
	rotation  string
	collector *matrixCollector // of the writer net
}

// matrixOptions are the options of the logs in the matrix. Each log has one value of each option.
// Each value meets each value of the other options in some log, unless [meets] excludes the pair.
var matrixOptions = [...][]string{
	{ // the encoder, with options in the place of %[1]s and %[2]s
		"format json {\n%[1]s\n%[2]s\n}",
		"format console {\n%[1]s\n%[2]s\n}",
		"format filter {\nrequest>uri regexp \\?.* ?REDACTED\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format filter {\nrequest>uri query {\ndelete token\nhash q\nreplace page 1\n}\nrequest>remote_ip ip_mask 16 32\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format filter {\nrequest>uri hash\nrequest>headers delete\nresp_headers delete\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format filter {\nrequest>uri delete\nrequest>method delete\nwrap console {\n%[1]s\n%[2]s\n}\n}",
		"format filter {\nrequest>uri regexp [^/]*$ REDACTED\nstatus replace x\nduration replace y\nrobots>ended_at replace z\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format filter {\nduration rename took\nrobots>decided_at delete\nrequest>headers>Cookie cookie {\ndelete session\n}\nrequest>remote_ip rename ip\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format journald {\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format append {\nhost gw1\nwrap json {\n%[1]s\n%[2]s\n}\n}",
		"format json {\nmessage_key m\nlevel_key l\nname_key \"\"\nlevel_format color\n%[1]s\n%[2]s\n}",
	},
	{ // the time
		"", "time_format unix_milli_float", "time_format unix_nano", "time_format iso8601", "time_format rfc3339", "time_format rfc3339_nano",
		"time_format wall", "time_format wall_milli", "time_format wall_nano", "time_format common_log", "time_format \"02 Jan 06 15:04 MST\"",
		"time_format rfc3339\ntime_local", "time_format wall_nano\ntime_local", "time_key at", "time_key \"\"",
	},
	{"", "duration_format string", "duration_format ms", "duration_format ns"},
	{"file", "sealed", "net", "stdout", "stderr"}, // the writer
	// The rotation: by Caddy, or like logrotate. "restart" restarts the gateway where "rename"
	// reloads it.
	{"none", "size", "time", "rename", "copytruncate", "restart"},
}

const optionWriter, optionRotation = 3, 4

// meets reports whether a writer can have a rotation. A sealed log reports the lines that
// copytruncate loses.
func meets(writer, rotation string) bool {
	switch writer {
	case "file":
		return true
	case "sealed":
		return rotation != "copytruncate"
	case "net":
		return rotation == "none" || rotation == "rename"
	default:
		return rotation != "size" && rotation != "time"
	}
}

// optionPair is a pair of values of two options, as indexes.
type optionPair struct{ one, value, other, otherValue int }

// matrixRow has the values of one log; -1 stands for a value that is not chosen yet.
type matrixRow [len(matrixOptions)]int

// valid reports whether a log can have these values.
func (r matrixRow) valid() bool {
	writer, rotation := r[optionWriter], r[optionRotation]
	return writer < 0 || rotation < 0 || meets(matrixOptions[optionWriter][writer], matrixOptions[optionRotation][rotation])
}

// pairs returns the pairs of values of the row.
func (r matrixRow) pairs() (pairs []optionPair) {
	for one := range r {
		for other := one + 1; other < len(r); other++ {
			if r[one] >= 0 && r[other] >= 0 {
				pairs = append(pairs, optionPair{one, r[one], other, r[other]})
			}
		}
	}
	return pairs
}

// fill chooses the missing values so that the row has as many new pairs as possible.
func (r matrixRow) fill(open map[optionPair]bool, usable func(matrixRow) bool) matrixRow {
	for option := range slices.Backward(r[:]) {
		if r[option] >= 0 {
			continue
		}
		best, most := r, -1
		for value := range matrixOptions[option] {
			// Among equals, take the next value in turn, so that all values occur about equally
			// often.
			next := r
			next[option] = (value + len(open)) % len(matrixOptions[option])
			covers := 0
			for _, p := range next.pairs() {
				if open[p] {
					covers++
				}
			}
			if next.valid() && usable(next) && covers > most {
				best, most = next, covers
			}
		}
		r = best
	}
	return r
}

// matrixRuns returns the logs of each gateway of the matrix. A process has only one standard output
// and one standard error.
func matrixRuns() (runs [][]matrixRow) {
	open, order := make(map[optionPair]bool), []optionPair(nil)
	for one, values := range matrixOptions {
		for other := one + 1; other < len(matrixOptions); other++ {
			for value := range values {
				for otherValue := range matrixOptions[other] {
					row := matrixRow{-1, -1, -1, -1, -1}
					row[one], row[other] = value, otherValue
					if row.valid() {
						order = append(order, optionPair{one, value, other, otherValue})
						open[order[len(order)-1]] = true
					}
				}
			}
		}
	}
	// Shuffle with a fixed seed, so that the first logs have as many of the values as possible.
	rand.New(rand.NewPCG(8, 1)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for len(open) > 0 {
		var run []matrixRow
		usable := func(r matrixRow) bool {
			writer := r[optionWriter]
			return writer < 0 || !slices.Contains([]string{"stdout", "stderr"}, matrixOptions[optionWriter][writer]) ||
				!slices.ContainsFunc(run, func(other matrixRow) bool { return other[optionWriter] == writer })
		}
		for _, p := range order {
			row := matrixRow{-1, -1, -1, -1, -1}
			row[p.one], row[p.other] = p.value, p.otherValue
			if !open[p] || len(run) == matrixLogs || !usable(row) {
				continue
			}
			row = row.fill(open, usable)
			for _, p := range row.pairs() {
				delete(open, p)
			}
			run = append(run, row)
		}
		runs = append(runs, run)
	}
	return runs
}

// matrixLogs is the largest number of logs of one gateway.
const matrixLogs = 13

// TestMatrixMeets checks that each value meets each other one in the whole matrix, and that the
// first two gateways have every value.
func TestMatrixMeets(t *testing.T) {
	t.Parallel()
	met, had, logs := make(map[optionPair]bool), make(map[[2]int]bool), 0
	runs := matrixRuns()
	for i, run := range runs {
		for _, row := range run {
			if logs++; !row.valid() || slices.Contains(row[:], -1) {
				t.Errorf("%v is not a valid log", row)
			}
			for _, p := range row.pairs() {
				met[p] = true
				if i < 2 {
					had[[2]int{p.one, p.value}], had[[2]int{p.other, p.otherValue}] = true, true
				}
			}
		}
	}
	values, want := 0, 0
	for one, list := range matrixOptions {
		values += len(list)
		for _, other := range matrixOptions[one+1:] {
			want += len(list) * len(other)
		}
	}
	for _, writer := range matrixOptions[optionWriter] {
		for _, rotation := range matrixOptions[optionRotation] {
			if !meets(writer, rotation) {
				want--
			}
		}
	}
	if len(met) != want || len(had) != values {
		t.Errorf("%d pairs, want %d; %d values at the first two gateways, want %d", len(met), want, len(had), values)
	}
	t.Logf("%d pairs in %d logs of %d gateways", want, logs, len(runs))
}

// newMatrixLog returns the log of a row, in a new folder.
func newMatrixLog(t *testing.T, row matrixRow) *matrixLog {
	t.Helper()
	value := func(option int) string { return matrixOptions[option][row[option]] }
	l := &matrixLog{dir: rig.TempDir(t), format: fmt.Sprintf(value(0), value(1), value(2)), writer: value(optionWriter), rotation: value(optionRotation)}
	if l.writer == "net" {
		l.collector = startMatrixCollector(t, l.live())
	}
	return l
}

// live returns the path of the file that the gateway writes.
func (l *matrixLog) live() string { return filepath.Join(l.dir, "access.log") }

// config returns the configuration of log number n.
func (l *matrixLog) config(n int) string {
	roll, ok := map[string]string{
		"size": "roll_size 1MiB\nroll_keep 1000\nroll_compression zstd", "time": "roll_interval 1s\nroll_keep 1000",
	}[l.rotation]
	if !ok {
		roll = "roll_disabled"
	}
	output := l.writer
	switch l.writer {
	case "file", "sealed":
		output = fmt.Sprintf("file %s {\n%s\n}", l.live(), roll)
	case "net":
		output += " " + l.collector.Addr().String()
	}
	if l.writer == "sealed" {
		output = fmt.Sprintf("robots_evidence {\nname m%d\nevery 100ms 100\n%s\n}", n, output)
	}
	return fmt.Sprintf("log m%d {\noutput %s\n%s\ninclude http.log.access\n}\n", n, output, l.format)
}

// rotate moves the log away like logrotate, and packs .1 as .2.gz later.
func (l *matrixLog) rotate(rotation string) error {
	live := l.live()
	if l.rotation != rotation {
		return nil
	}
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
	switch {
	case rotation == "copytruncate":
		if text, err = os.ReadFile(live); err == nil {
			err = errors.Join(os.WriteFile(live+".1", text, 0o600), os.Truncate(live, 0))
		}
		return err
	case l.collector != nil:
		return l.collector.rotate()
	default:
		return errors.Join(os.Rename(live, live+".1"), os.WriteFile(live, nil, 0o600)) // "create"
	}
}

// matrixCollector accepts one connection at a time and copies its lines to a file.
type matrixCollector struct {
	net.Listener
	name string

	mu   sync.Mutex
	file *os.File
	conn net.Conn // nil for none
	line []byte   // the beginning of one
}

func startMatrixCollector(t *testing.T, name string) *matrixCollector {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &matrixCollector{Listener: l, name: name}
	if c.file, err = os.Create(name); err != nil {
		t.Fatal(err)
	}
	var taking sync.WaitGroup
	taking.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conn = conn
			c.mu.Unlock()
			_, _ = io.Copy(c, conn)
			_ = conn.Close()
			c.mu.Lock()
			_, _ = c.file.Write(c.line)
			c.line = nil
			c.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.hangUp()
		taking.Wait()
		_ = c.file.Close()
	})
	return c
}

// Write implements [io.Writer].
func (c *matrixCollector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line = append(c.line, p...)
	whole := bytes.LastIndexByte(c.line, '\n') + 1
	_, err := c.file.Write(c.line[:whole])
	c.line = c.line[whole:]
	return len(p), err
}

// hangUp ends the connection. The gateway may open another one.
func (c *matrixCollector) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// rotate starts another file.
func (c *matrixCollector) rotate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := errors.Join(c.file.Close(), os.Rename(c.name, c.name+".1"))
	if err == nil {
		c.file, err = os.Create(c.name)
	}
	return err
}
