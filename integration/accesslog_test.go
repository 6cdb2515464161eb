package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/crawlgate/crawlgate/enforce"
)

// logLine is the part of an access-log line that tests look at.
type logLine struct {
	Request struct {
		Method string `json:"method"`
		URI    string `json:"uri"`
		Host   string `json:"host"`
	} `json:"request"`
	Duration  float64        `json:"duration"`
	Status    int            `json:"status"`
	BytesRead int64          `json:"bytes_read"`
	Size      int64          `json:"size"`
	Robots    enforce.Record `json:"robots"`
	raw       string
}

// logs reads the access log when it holds n lines or more. Caddy writes a line when the handler returns, which may be
// after the client has its answer. To see that there are no more than n, stop the gateway first.
func (g *gateway) logs(n int) []logLine {
	g.t.Helper()
	var lines []logLine
	eventually(g.t, "lines in the access log", func() bool {
		lines = g.readLogs()
		return len(lines) >= n
	})
	return lines
}

// readLogs reads all whole lines about requests, but for those about the gateway's own pages, which have no object "robots".
func (g *gateway) readLogs() []logLine {
	g.t.Helper()
	content, err := os.ReadFile(filepath.Join(g.dir, "access.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		g.t.Fatal(err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	var lines []logLine
	s := bufio.NewScanner(bytes.NewReader(content))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l := logLine{raw: s.Text()}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			g.t.Fatalf("access log line %d: %v: %s", len(lines)+1, err, l.raw)
		}
		if l.Robots.Schema != 0 || l.Request.Method != "" && !strings.HasPrefix(l.Request.URI, "/") {
			lines = append(lines, l)
		}
	}
	if err := s.Err(); err != nil {
		g.t.Fatal(err)
	}
	return lines
}
