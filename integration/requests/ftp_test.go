package requests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

const ftpRules = "User-agent: *\nDisallow: /private\nDisallow: /pub/c++/\nDisallow: /pub/list/$\n"

// ftpOrigin returns a scripted FTP server with rules, and files that they match.
func ftpOrigin() *testorigin.FTPSite {
	return &testorigin.FTPSite{
		Files: map[string]string{
			"/robots.txt": ftpRules, "/pub/a.txt": "some text\n", "/pub/a+b": "plus", "/private/s": "a secret",
			"/pub/big": strings.Repeat("0123456789", 1_000_000),
		},
		Dirs: map[string]string{"/": "", "/pub": "a.txt\r\n", "/pub/list": "secret\r\n", "/private": "s\r\n", "/pub/c++": "secret\r\n"},
	}
}

// realFTP serves a folder with pyftpdlib and returns its URL.
func realFTP(t *testing.T, files map[string]string) string {
	t.Helper()
	rig.Need(t, rig.SystemPython)
	if err := exec.Command(rig.SystemPython, "-c", "import pyftpdlib").Run(); err != nil {
		rig.Missing(t, "Python's pyftpdlib")
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(rig.SystemPython, filepath.Join("testdata", "ftpd.py"), dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // it has no state to save
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the FTP server did not start: %v", err)
	}
	return "ftp://127.0.0.1:" + strings.TrimSpace(port)
}

// TestFTPByCurl reads from a real FTP server with curl.
func TestFTPByCurl(t *testing.T) {
	t.Parallel()
	curl := rig.Need(t, "curl")
	site := realFTP(t, map[string]string{
		"robots.txt": ftpRules, "pub/a.txt": "some text\n", "pub/a & b (1).html": "<p>", "private/s": "a secret",
		"pub/big.bin": strings.Repeat("0123456789", 1_000_000),
	})
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\n}"})
	ask := func(path string, args ...string) (status, body string) {
		t.Helper()
		args = append(args, "--disable", "--silent", "--noproxy", "", "--proxy", "http://"+g.Addr, "--globoff", "--path-as-is",
			"--write-out", "\n%{http_code} %header{content-length} %header{content-type}", site+path)
		out, err := exec.CommandContext(t.Context(), curl, args...).Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", path, err, out)
		}
		end := strings.LastIndexByte(string(out), '\n')
		return string(out[end+1:]), string(out[:end])
	}
	for _, tt := range []struct {
		path   string
		args   []string
		status string
		body   string // a part of it
	}{
		{"/pub/a.txt", nil, "200 10 text/plain; charset=utf-8", "some text\n"},
		{"/pub/big.bin", nil, "200 10000000 application/octet-stream", strings.Repeat("0123456789", 1_000_000)},
		{"/pub/big.bin", []string{"--head"}, "200 10000000 application/octet-stream", "Last-Modified: "},
		{"/pub/", nil, "200 278 text/html; charset=utf-8", `<a href="./a%20&amp;%20b%20(1).html">a &amp; b (1).html</a>`},
		{"/pub", nil, "301 0 ", ""},
		{"/pub", []string{"--location"}, "200 278 text/html; charset=utf-8", `<a href="./big.bin">big.bin</a>`},
		{"/pub/", []string{"--header", "Accept: text/plain"}, "200 29 text/plain; charset=utf-8", "a & b (1).html\n"},
		{"/pub/a%20%26%20b%20%281%29.html", []string{"--location"}, "200 3 text/html; charset=utf-8", "<p>"},
		{"/nothing", nil, "404 55 text/plain; charset=utf-8", "550"},
		{"/robots.txt", nil, fmt.Sprintf("200 %d text/plain; charset=utf-8", len(ftpRules)), ftpRules},
	} {
		if status, body := ask(tt.path, tt.args...); status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %q: got %q, %.300q; want %q, %q", tt.path, tt.args, status, body, tt.status, tt.body)
		}
	}
	if status, body := ask("/private/s"); !strings.HasPrefix(status, "403 ") || !strings.Contains(body, "(line 2)") {
		t.Errorf("/private/s: got %q, %.300q; want 403 by line 2", status, body)
	}
	for _, method := range []string{"PUT", "POST", "DELETE", "OPTIONS"} {
		if status, body := ask("/pub/a.txt", "--request", method, "--include"); !strings.HasPrefix(status, "405 ") || !strings.Contains(body, "\nAllow: GET, HEAD\r\n") {
			t.Errorf("%s: got %q, %.300q; want 405", method, status, body)
		}
	}
	g.Stop()
	for _, l := range g.ReadLogs() {
		reached := l.Status == 200 && !strings.HasSuffix(l.Request.URI, "/robots.txt")
		if l.Robots.Origin != site || reached && (l.Robots.Decision != "allow" || l.Robots.Address != strings.TrimPrefix(site, "ftp://")) {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
}

// TestFTPSpellings checks that no spelling makes the gateway request a disallowed path from the
// server, even if paths are judged as sent, and that no spelling of a single permitted file is
// refused.
func TestFTPSpellings(t *testing.T) {
	t.Parallel()
	origin := ftpOrigin()
	site := "ftp://" + testorigin.StartFTP(t, origin)
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\n}", Site: "paths as_sent"})
	for path, want := range map[string]int{
		"/pub/a.txt": 200, "/pub/%61.txt": 200, "/pub/a+b": 200, "/pub/a%2Bb": 301, "/pub/a%2bb": 301, "/pub/": 200, "/pub": 301,
		"/": 200, "": 200, "/pub/list": 301, "/pub/list%20x": 404, "/pub/*": 404, "/p*b/": 404, "/[p]rivate/": 404, "/%5Bp%5Drivate/": 301,
		"/-R": 404, "/~root": 404, "/pub/caf%C3%A9": 404, "/pub/caf%E9": 404, "/pub/a:b": 404, "/pub/c%2B%2B/": 301, "/pub/c%2b%2b/secret": 301,

		"/private": 403, "/private/": 403, "/private/s": 403, "/priv%61te/s": 403, "/%70rivate/s": 403, "/%50rivate/s": 404,
		"/pub/c++/": 403, "/pub/c++/secret": 403, "/pub/c%2b+/": 301, "/pub/list/": 403,

		"//private/s": 400, "///private/s": 400, "/pub//private": 400, "/pub/../private/s": 400, "/./private/s": 400,
		"/%2e/private/s": 400, "/pub/%2e%2e/private/s": 400, "/pub/%2E./private/s": 400, "/pub/.%2e/private/s": 400,
		"/%2Fprivate/s": 400, "/%2fprivate/s": 400, "/pub%2F..%2Fprivate%2Fs": 400, "/pub/..%2fprivate/s": 400, "/x%2f../private/s": 400,
		"/%5Cprivate/s": 400, "/pub%5C..%5Cprivate": 400, "/pub\\..\\private": 400, "/pub/..;/private/s": 400, "/;x/private/s": 400,
		"/private/..": 400, "/private.": 400, "/private%20": 400, "/private%2e/s": 400, "/private%20/s": 400,
		"/pri%FF%F1vate/s": 400, "/pri%00vate/s": 400, "/a%0d%0aRETR%20/private/s": 400, "/a%0aCWD%20/private": 400, "/a%0dRETR%20/private/s": 400,
		"/pub/a.txt;type=i": 400, "/pub/a.txt;type=a": 400, "/pub/;type=d": 400, "/pub/a.txt;TYPE=I": 400, "/pub/a.txt%3Btype=i": 400,
		"/pub/a.txt?x": 400, "/pub/a.txt?": 400, "/pub/a.txt%3Fx": 400, "/private;type=d": 400, "/private?": 400,
		"/" + strings.Repeat("a/", 3000): 400,
	} {
		a, err := g.Fetch("Tester/1.0", site+path)
		if err != nil || a.Status != want {
			t.Errorf("%q: status %d, error %v, want %d: %.200s", path, a.Status, err, want, a.Body)
		}
		if a.Status == http.StatusMovedPermanently {
			location := a.Header.Get("Location")
			if next := g.MustFetch("Tester/1.0", site+location); next.Status == http.StatusMovedPermanently {
				t.Errorf("%q redirects to %q, which redirects to %q", path, location, next.Header.Get("Location"))
			}
		}
	}
	for _, s := range readSpellings(t) {
		if !s.deny {
			continue
		}
		if a, err := g.Fetch("Tester/1.0", site+s.sent()); err != nil || a.Status != http.StatusBadRequest {
			t.Errorf("%q: status %d, error %v, want 400", s.path, a.Status, err)
		}
	}
	for _, command := range origin.Commands() {
		for _, secret := range []string{"/private", "/pub/c++", "/pub/list/", "\\", "..", "\xff", ";"} {
			if strings.Contains(command, secret) {
				t.Errorf("the server got the command %q", command)
			}
		}
	}
}

// TestFTPUserinfo checks that the gateway logs in only as anonymous.
func TestFTPUserinfo(t *testing.T) {
	t.Parallel()
	origin := ftpOrigin()
	addr := testorigin.StartFTP(t, origin)
	g := rig.New(t, rig.Config{})
	for _, user := range []string{"u:p@", "anonymous@", "anonymous:x@", "@"} {
		if a := g.MustFetch("Tester/1.0", "ftp://"+user+addr+"/pub/a.txt"); a.Status != http.StatusBadRequest && user != "@" {
			t.Errorf("%s: status %d, want 400", user, a.Status)
		}
	}
	for _, c := range origin.Commands() {
		if strings.HasPrefix(c, "USER ") && c != "USER anonymous" {
			t.Errorf("the server got the command %q", c)
		}
	}
}

// TestFTPPorts checks that port 21 is open for ftp only, and that PASV leads only to the server
// itself, never to a listener of the gateway.
func TestFTPPorts(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	port := other.Addr().(*net.TCPAddr).Port
	elsewhere := ftpOrigin()
	elsewhere.Replies = map[string]string{"EPSV": "502 no", "PASV": fmt.Sprintf("227 (127,0,0,2,%d,%d)", port>>8, port&255)}
	mail := ftpOrigin()
	mail.Replies = map[string]string{"EPSV": "229 (|||25|)"}
	lies := ftpOrigin()
	lies.Replies = map[string]string{"EPSV": "502 no"} // its PASV names 10.0.0.1

	g := rig.New(t, rig.Config{Site: "mode off"})
	_, own, _ := net.SplitHostPort(g.Addr)
	back := ftpOrigin()
	back.Replies = map[string]string{"EPSV": "229 (|||" + own + "|)"}
	for _, tt := range []struct {
		url    string
		status int
		reason enforce.Reason
	}{
		{"ftp://127.0.0.1/a", 502, "connection_refused"},
		{"ftp://127.0.0.1:21/a", 502, "connection_refused"},
		{"http://127.0.0.1:21/a", 403, enforce.ReasonForbiddenPort},
		{"https://127.0.0.1:21/a", 403, enforce.ReasonForbiddenPort},
		{"ftp://127.0.0.1:25/a", 403, enforce.ReasonForbiddenPort},
		{"ftp://10.0.0.1/a", 403, enforce.ReasonForbiddenAddress},
		{"ftp://127.0.0.1:" + own + "/a", 403, enforce.ReasonOwnListener},
		{"ftp://" + testorigin.StartFTP(t, elsewhere) + "/pub/a.txt", 502, "connection_refused"},
		{"ftp://" + testorigin.StartFTP(t, mail) + "/pub/a.txt", 403, enforce.ReasonForbiddenPort},
		{"ftp://" + testorigin.StartFTP(t, back) + "/pub/a.txt", 403, enforce.ReasonOwnListener},
		{"ftp://" + testorigin.StartFTP(t, lies) + "/pub/a.txt", 200, enforce.ReasonRobotsOff},
	} {
		a := g.MustFetch("Tester/1.0", tt.url)
		if a.Status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", tt.url, a.Status, tt.status, a.Body)
		}
		logs := g.Logs(1)
		rig.Eventually(t, tt.url+" in the log", func() bool {
			logs = g.ReadLogs()
			return slices.ContainsFunc(logs, func(l rig.LogLine) bool { return l.Request.URI == tt.url })
		})
		if last := logs[len(logs)-1]; last.Robots.Reason != tt.reason {
			t.Errorf("%s: the log line is %s", tt.url, last.Raw)
		}
	}
	_ = other.(*net.TCPListener).SetDeadline(time.Now())
	if conn, err := other.Accept(); err == nil {
		t.Errorf("the gateway connected to %s", conn.LocalAddr())
	}
}

// TestFTPHostile checks that the client gets an error for a server's faults, and that the log names
// them.
func TestFTPHostile(t *testing.T) {
	t.Parallel()
	half := func(_, data net.Conn, content string) {
		_, _ = io.WriteString(data, content[:len(content)/2])
	}
	endless := func(_, data net.Conn, _ string) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(data, strings.Repeat("type=file; a\r\n", 100))
		}
	}
	mute := func(control, _ net.Conn, _ string) { _, _ = io.Copy(io.Discard, control) }
	g := rig.New(t, rig.Config{Site: "mode off", Egress: "response_header_timeout 1s", Engine: "pace {\nrate off\nconcurrency 64\nbackoff off\n}"})
	for _, tt := range []struct {
		name     string
		path     string
		replies  map[string]string
		transfer func(control, data net.Conn, content string)
		status   int // 0 if the answer breaks off
		reason   enforce.Reason
	}{
		{"no FTP", "/pub/a.txt", map[string]string{"": "HTTP/1.1 400 Bad Request"}, nil, 502, "protocol"},
		{"no greeting", "/pub/a.txt", map[string]string{"": ""}, nil, 504, "timeout"},
		{"endless banner", "/pub/a.txt", map[string]string{"": strings.Repeat("220-hello\r\n", 1<<16)}, nil, 502, "header_size"},
		{"NUL", "/pub/a.txt", map[string]string{"PASS": "23\x000 hello"}, nil, 502, "protocol"},
		{"replies in the wrong order", "/pub/a.txt", map[string]string{"": "226 done"}, nil, 502, "protocol"},
		{"endless listing", "/pub/", map[string]string{"FEAT": "211-has\r\n MLST type;\r\n211 end"}, endless, 502, "listing_size"},
		{"mute listing", "/pub/", nil, mute, 504, "timeout"},
		{"half a listing", "/pub/", map[string]string{"226": "426 aborted"}, half, 502, enforce.ReasonRobotsOff},
		{"half a file", "/pub/a.txt", nil, half, 0, "incomplete"},
		{"half a file of unknown size", "/pub/a.txt", map[string]string{"SIZE": "502 no", "226": "426 aborted"}, half, 0, "incomplete"},
		{"never a 226", "/pub/a.txt", map[string]string{"226": ""}, nil, 0, "stalled"},
		{"a whole file, said to be aborted", "/pub/a.txt", map[string]string{"226": "426 aborted"}, nil, 0, "incomplete"},
		{"login refused", "/pub/a.txt", map[string]string{"PASS": "530 no"}, nil, 403, enforce.ReasonRobotsOff},
	} {
		origin := ftpOrigin()
		origin.Replies, origin.Transfer = tt.replies, tt.transfer
		url := "ftp://" + testorigin.StartFTP(t, origin) + tt.path
		a, err := g.Fetch("Tester/1.0", url)
		if tt.status == 0 && !errors.Is(err, io.ErrUnexpectedEOF) || tt.status != 0 && (err != nil || a.Status != tt.status) {
			t.Errorf("%s: status %d, error %v, want %d: %.200s", tt.name, a.Status, err, tt.status, a.Body)
		}
		var line rig.LogLine
		rig.Eventually(t, tt.name+" in the log", func() bool {
			logs := g.ReadLogs()
			i := slices.IndexFunc(logs, func(l rig.LogLine) bool { return l.Request.URI == url })
			if i >= 0 {
				line = logs[i]
			}
			return i >= 0
		})
		if line.Robots.Reason != tt.reason || line.Robots.Address == "" {
			t.Errorf("%s: the log line is %s", tt.name, line.Raw)
		}
	}
}

// TestFTPBackoff checks that 421 has the effect of HTTP's 503.
func TestFTPBackoff(t *testing.T) {
	t.Parallel()
	origin := ftpOrigin()
	origin.Replies = map[string]string{"": "421 too many users"}
	url := "ftp://" + testorigin.StartFTP(t, origin) + "/pub/a.txt"
	g := rig.New(t, rig.Config{Site: "mode off", Engine: "pace {\nwait 0s\nbackoff 60s 24h\n}"})
	if a := g.MustFetch("Tester/1.0", url); a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, "421 too many users") {
		t.Errorf("the first request: status %d, %s", a.Status, a.Body)
	}
	g.Logs(1) // a line may come after the next request's
	if a := g.MustFetch("Tester/1.0", url); a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("the second request: status %d, %s", a.Status, a.Body)
	}
	if logs := g.Logs(2); logs[0].Robots.Reason != enforce.ReasonRobotsOff || logs[1].Robots.Reason != enforce.ReasonBackoff {
		t.Errorf("the log lines are %s and %s", logs[0].Raw, logs[1].Raw)
	}
}

// TestFTPPaced checks that a host has one clock, for ftp too.
func TestFTPPaced(t *testing.T) {
	t.Parallel()
	url := "ftp://" + testorigin.StartFTP(t, ftpOrigin()) + "/pub/a.txt"
	g := rig.New(t, rig.Config{Engine: "pace {\nrate 2/s\nburst 1\n}"})
	began := time.Now()
	for range 3 {
		if a := g.MustFetch("Tester/1.0", url); a.Status != http.StatusOK {
			t.Errorf("status %d, want 200: %s", a.Status, a.Body)
		}
	}
	if took := time.Since(began); took < time.Second { // two intervals, however late each request comes
		t.Errorf("three requests took %v: %s", took, g.Logs(3)[2].Raw)
	}
}

// TestFTPStop checks that a stop ends a transfer in the middle, and that the server sees the end.
func TestFTPStop(t *testing.T) {
	t.Parallel()
	origin := ftpOrigin()
	ended := make(chan struct{})
	origin.Transfer = func(control, data net.Conn, content string) {
		if len(content) < 1000 {
			_, _ = io.WriteString(data, content)
			return
		}
		_, _ = io.WriteString(data, content[:1000])
		_, _ = io.Copy(io.Discard, data)
		_, _ = io.Copy(io.Discard, control)
		close(ended)
	}
	url := "ftp://" + testorigin.StartFTP(t, origin) + "/pub/big"
	g := rig.New(t, rig.Config{})
	w := g.Dial()
	if _, err := fmt.Fprintf(w, "GET %s HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n", url); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(w.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 999)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), rig.Binary, "robots", "deny", "host", "127.0.0.1", "--reason", "a complaint",
		"--gateway", "unix/"+g.AdminSocket()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client got the error %v, want an unexpected EOF", err)
	}
	<-ended
	if l := g.Logs(1)[0]; l.Robots.Reason != enforce.ReasonKillSwitch || l.Robots.Address == "" {
		t.Errorf("the log line is %s", l.Raw)
	}
}
