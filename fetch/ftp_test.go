package fetch

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// ftpSite returns an FTP server with one file, and with the given replies.
func ftpSite(file string, replies ...string) *testorigin.FTPSite {
	s := &testorigin.FTPSite{Files: map[string]string{"/robots.txt": file}, Replies: make(map[string]string)}
	for i := 0; i < len(replies); i += 2 {
		s.Replies[replies[i]] = replies[i+1]
	}
	return s
}

// ftpTransport returns the gateway's transport, which supports FTP, with loopback open.
func ftpTransport(tb testing.TB) *egress.Transport {
	tb.Helper()
	allowed := &guard.Guard{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	transport, err := egress.NewTransport(egress.TransportConfig{Dialer: &egress.Dialer{Guard: allowed}})
	if err != nil {
		tb.Fatal(err)
	}
	return transport
}

// fetchFTPFrom fetches robots.txt from s.
func fetchFTPFrom(t *testing.T, s *testorigin.FTPSite) Outcome {
	t.Helper()
	out := New(Config{Transport: ftpTransport(t)}).Fetch(t.Context(), mustKey(t, "ftp://"+testorigin.StartFTP(t, s)), nil)
	checkOutcome(t, out)
	return out
}

// TestGoogle_FTP checks the outcomes for FTP servers, which Google's specification includes.
func TestGoogle_FTP(t *testing.T) {
	t.Parallel()
	cut := ftpSite(rules, "226", "426 aborted")
	cut.Transfer = func(_, data net.Conn, content string) {
		say(data, content)
		hangUpHard(data)
	}
	tests := []struct {
		name string
		site *testorigin.FTPSite
		want want
	}{
		{"file", ftpSite(rules), want{KindRules, ""}},
		{"empty file", ftpSite(""), want{KindRules, ""}},
		{"no password asked", ftpSite(rules, "USER", "230 hello"), want{KindRules, ""}},
		{"long greeting", ftpSite(rules, "PASS", "230-"+strings.Repeat("x\r\n", 1000)+"230 hello"), want{KindRules, ""}},
		{"features", ftpSite(rules, "FEAT", "211-has\r\n UTF8\r\n MLST x\r\n211 end"), want{KindRules, ""}},
		{"no EPSV", ftpSite(rules, "EPSV", "502 no"), want{KindRules, ""}},

		{"no file", ftpSite("", "RETR", "550 no such file"), want{KindAbsent, CauseFTP}},
		{"busy file", ftpSite("", "RETR", "450 later"), want{KindUnreachable, CauseFTP}},
		{"RETR unknown", ftpSite("", "RETR", "502 what?"), want{KindUnreachable, CauseFTP}},
		{"bad name", ftpSite("", "RETR", "553 no"), want{KindUnreachable, CauseFTP}},
		{"550 to PASV is not about the file", ftpSite("", "EPSV", "550 no", "PASV", "550 no"), want{KindUnreachable, CauseFTP}},
		{"550 to PASS is not about the file", ftpSite("", "PASS", "550 no"), want{KindUnreachable, CauseFTP}},
		{"550 to TYPE is not about the file", ftpSite("", "TYPE", "550 no"), want{KindUnreachable, CauseFTP}},
		{"550 at the end is not about the file", ftpSite(rules, "226", "550 gone"), want{KindUnreachable, CauseTruncated}},
		{"no anonymous user", ftpSite("", "USER", "530 no"), want{KindUnreachable, CauseFTP}},
		{"login refused", ftpSite("", "PASS", "530 no"), want{KindUnreachable, CauseFTP}},
		{"too many users", ftpSite("", "", "421 later"), want{KindUnreachable, CauseFTP}},
		{"no FTP", ftpSite("", "", "HTTP/1.1 400 Bad Request"), want{KindUnreachable, CauseProtocol}},
		{"nonsense to USER", ftpSite("", "USER", "hm"), want{KindUnreachable, CauseProtocol}},
		{"nonsense to PASV", ftpSite("", "EPSV", "229 hm", "PASV", "227 hm"), want{KindUnreachable, CauseProtocol}},
		{"endless greeting", ftpSite("", "", strings.Repeat("220-hello\r\n", 1<<18)), want{KindUnreachable, CauseProtocol}},
		{"endless line", ftpSite("", "USER", "331 "+strings.Repeat("x", 1<<20)), want{KindUnreachable, CauseProtocol}},
		{"aborted", ftpSite(rules, "226", "426 aborted"), want{KindUnreachable, CauseTruncated}},
		{"local error", ftpSite(rules, "226", "451 disk"), want{KindUnreachable, CauseTruncated}},
		{"data reset", cut, want{KindUnreachable, CauseTruncated}},
		{"aborted before the limit", ftpSite(strings.Repeat("#", MinSize-1), "226", "426 aborted"), want{KindUnreachable, CauseTruncated}},
		{"a directory", &testorigin.FTPSite{Dirs: map[string]string{"/robots.txt": ""}}, want{KindAbsent, CauseFTP}},
		{"too long a file", ftpSite(strings.Repeat("0123456789", 100_000)), want{KindRules, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := fetchFTPFrom(t, tt.site)
			tt.want.check(t, out)
			if out.Status != 0 || len(out.Hops) > 0 {
				t.Errorf("status %d, hops %q", out.Status, out.Hops)
			}
			if file := tt.site.Files["/robots.txt"]; out.Kind == KindRules {
				if !bytes.Equal(out.Body, []byte(file[:min(len(file), MinSize)])) || out.Truncated != (len(file) > MinSize) {
					t.Errorf("body of %d, truncated is %v", len(out.Body), out.Truncated)
				}
			} else if reply := tt.site.Replies["RETR"]; !strings.Contains(out.Detail, reply) {
				t.Errorf("the detail %q does not contain %q", out.Detail, reply)
			}
		})
	}
}

// TestExt_FTPGuard checks that both connections pass the guard. If it refuses the server, that says
// nothing about the server. If it refuses a data connection, the server has named a bad port.
func TestExt_FTPGuard(t *testing.T) {
	t.Parallel()
	f := New(Config{Transport: ftpTransport(t)})
	out := f.Fetch(t.Context(), mustKey(t, "ftp://10.0.0.1"), nil)
	want{KindUnreachable, CauseForbiddenAddress}.check(t, out)
	if !out.Refused() {
		t.Errorf("a server at a private address: %+v, want refused", out)
	}
	out = fetchFTPFrom(t, ftpSite(rules, "EPSV", "229 (|||25|)"))
	want{KindUnreachable, CauseFTP}.check(t, out)
	if out.Refused() || !strings.Contains(out.Detail, "data connection: ") {
		t.Errorf("a data connection to port 25: %+v", out)
	}
}

// TestExt_FTPLimits checks that a server's replies may take as long as a whole fetch.
func TestExt_FTPLimits(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]want{
		defaultTimeout - 1: {KindRules, ""},
		defaultTimeout + 1: {KindUnreachable, CauseTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := New(Config{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				select {
				case <-time.After(after):
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(rules)), ContentLength: -1}, nil
			})})
			want.check(t, f.Fetch(t.Context(), mustKey(t, "ftp://a.example"), nil))
		})
	}
}

// TestExt_FTPCallerLeaves checks that a session ends when its caller gives up.
func TestExt_FTPCallerLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	addr := rawServer(t, func(conn net.Conn) {
		cancel()
		listen(conn)
	})
	out := New(Config{Transport: ftpTransport(t)}).Fetch(ctx, mustKey(t, "ftp://"+addr), nil)
	want{KindUnreachable, CauseCanceled}.check(t, out)
}
