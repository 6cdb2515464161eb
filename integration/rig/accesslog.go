package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// LogLine is the part of an access-log line that tests use.
type LogLine struct {
	Request struct {
		Method string `json:"method"`
		URI    string `json:"uri"`
		Host   string `json:"host"`
	} `json:"request"`
	Duration  float64           `json:"duration"`
	Status    int               `json:"status"`
	BytesRead int64             `json:"bytes_read"`
	Size      int64             `json:"size"`
	Robots    enforce.LogRecord `json:"robots"`
	Raw       string
}

// Logs returns the lines of the access log when there are at least n. Caddy writes a line when the
// handler returns, possibly after the client has its answer. To check that there are no more than
// n, stop the gateway first.
func (g *Gateway) Logs(n int) []LogLine {
	g.T.Helper()
	var lines []LogLine
	Eventually(g.T, "lines in the access log", func() bool {
		lines = g.ReadLogs()
		return len(lines) >= n
	})
	return lines
}

// ReadLogs returns all complete lines about requests, except those about the gateway's own pages,
// which have no object "robots".
func (g *Gateway) ReadLogs() []LogLine {
	g.T.Helper()
	content, err := os.ReadFile(filepath.Join(g.Dir, "access.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.T.Fatal(err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	var lines []LogLine
	s := bufio.NewScanner(bytes.NewReader(content))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l := LogLine{Raw: s.Text()}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			g.T.Fatalf("access log line %d: %v: %s", len(lines)+1, err, l.Raw)
		}
		if l.Robots.Schema != 0 || l.Request.Method != "" && !strings.HasPrefix(l.Request.URI, "/") {
			lines = append(lines, l)
		}
	}
	if err := s.Err(); err != nil {
		g.T.Fatal(err)
	}
	return lines
}

// WithoutUntil returns a decision without the time until which the site's robots.txt refuses: a day
// at most (RFC 9309 section 2.4).
func WithoutUntil(t *testing.T, decision string) string {
	t.Helper()
	rest, until, found := strings.Cut(decision, "; until=@")
	seconds, err := strconv.ParseInt(until, 10, 64)
	if left := time.Until(time.Unix(seconds, 0)); found && (err != nil || left < time.Minute || left > 24*time.Hour) {
		t.Errorf("%s ends in %s, error %v, want a minute to a day", decision, left, err)
	}
	if found == strings.HasPrefix(decision, "allow") {
		t.Errorf("%s: only a refusal by robots.txt has an end", decision)
	}
	return rest
}

// CountReason counts the lines with a reason.
func CountReason(reasons []enforce.Reason, r enforce.Reason) (n int) {
	for _, e := range reasons {
		if e == r {
			n++
		}
	}
	return n
}
