package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/egress/ftphttp"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// ftpSite returns a site with a file, a directory, and a reply of MLSD.
func ftpSite() *testorigin.FTPSite {
	return &testorigin.FTPSite{
		Files: map[string]string{"/pub/a.txt": "some text\n", "/pub/none": "", "/pub/one": "1", "/big": strings.Repeat("0123456789", 100_000)},
		Dirs: map[string]string{
			"/": "", "/pub": "-rw-r--r--   1 ftp ftp  10 Jan  2 2020 a.txt\r\ndrwxr-xr-x   2 ftp ftp  10 Jan  2 2020 sub\r\nlrwxrwxrwx   1 ftp ftp  10 Jan  2 2020 link -> /etc\r\n",
		},
	}
}

// with returns a copy of a site with other replies.
func with(s *testorigin.FTPSite, replies ...string) *testorigin.FTPSite {
	s.Replies = make(map[string]string)
	for i := 0; i < len(replies); i += 2 {
		s.Replies[replies[i]] = replies[i+1]
	}
	return s
}

func askFTP(t *testing.T, site *testorigin.FTPSite, method, path string, accept ...string) (*http.Response, error) {
	t.Helper()
	addr := testorigin.StartFTP(t, site)
	r := request(t, t.Context(), method, "ftp://"+addr+path, nil)
	r.Header["Accept"] = accept
	return newTestTransport(t, TransportConfig{}).RoundTrip(r)
}

// TestFTPAnswers checks RFC 1738 section 3.2.2, and the HTTP statuses for the replies of RFC 959
// section 4.2.
func TestFTPAnswers(t *testing.T) {
	t.Parallel()
	const (
		features = "211-has\r\n SIZE\r\n MDTM\r\n211 end"
		modified = "Thu, 02 Jan 2020 03:04:05 GMT"
		page     = -2 // any length
	)
	tests := []struct {
		name, method, path string
		site               *testorigin.FTPSite
		status             int
		header, body       string // body is a part of the body
		length             int64
	}{
		{"file", "GET", "/pub/a.txt", ftpSite(), 200, "Content-Type: text/plain; charset=utf-8", "some text\n", 10},
		{"file with a date", "GET", "/pub/a.txt", with(ftpSite(), "FEAT", features), 200, "Last-Modified: " + modified, "some text\n", 10},
		{"file of an unknown kind", "GET", "/big", ftpSite(), 200, "Content-Type: application/octet-stream", "0123456789", 1_000_000},
		{"file of unknown size", "GET", "/pub/a.txt", with(ftpSite(), "SIZE", "502 no"), 200, "", "some text\n", -1},
		{"nonsense for a size", "GET", "/pub/a.txt", with(ftpSite(), "SIZE", "213 many"), 200, "", "some text\n", -1},
		{"size below zero", "GET", "/pub/a.txt", with(ftpSite(), "SIZE", "213 -5"), 200, "", "some text\n", -1},
		{"empty file", "GET", "/pub/none", ftpSite(), 200, "", "", -1},
		{"bytes of an empty file", "GET", "/pub/a.txt", with(ftpSite(), "SIZE", "213 0"), 200, "", "some text\n", -1},
		{"HEAD of an empty file", "HEAD", "/pub/none", ftpSite(), 200, "", "", 0},
		{"one byte", "GET", "/pub/one", ftpSite(), 200, "", "1", 1},
		{"250 for the end", "GET", "/pub/a.txt", with(ftpSite(), "226", "250 done"), 200, "", "some text\n", 10},
		{"no EPSV, PASV names another address", "GET", "/pub/a.txt", with(ftpSite(), "EPSV", "502 no"), 200, "", "some text\n", 10},
		{"no password asked", "GET", "/pub/a.txt", with(ftpSite(), "USER", "230 hello"), 200, "", "some text\n", 10},
		{"long greeting", "GET", "/pub/a.txt", with(ftpSite(), "PASS", "230-"+strings.Repeat("x\r\n", 1000)+"230 hello"), 200, "", "some text\n", 10},

		{"HEAD", "HEAD", "/pub/a.txt", with(ftpSite(), "FEAT", features), 200, "Last-Modified: " + modified, "", 10},
		{"HEAD without SIZE", "HEAD", "/pub/a.txt", with(ftpSite(), "SIZE", "502 no", "FEAT", features), 200, "Last-Modified: " + modified, "", -1},
		{"HEAD without either", "HEAD", "/pub/a.txt", with(ftpSite(), "SIZE", "502 no"), 502, "", "", page},
		{"HEAD of nothing", "HEAD", "/nothing", ftpSite(), 404, "", "", page},
		{"HEAD of a directory", "HEAD", "/pub/", ftpSite(), 200, "Content-Type: text/html; charset=utf-8", "", -1},
		{"HEAD of a directory without its slash", "HEAD", "/pub", ftpSite(), 301, "Location: /pub/", "", 0},

		{"directory", "GET", "/pub/", ftpSite(), 200, "Content-Type: text/html; charset=utf-8", `<li><a href="./a.txt">a.txt</a></li>` + "\n" + `<li><a href="./sub/">sub/</a></li>` + "\n" + `<li><a href="./link">link</a></li>`, page},
		{"root", "GET", "/", ftpSite(), 200, "", "<h1>/</h1>", page},
		{"directory without its slash", "GET", "/pub", ftpSite(), 301, "Location: /pub/", "", 0},
		{"directory, RETR refused otherwise", "GET", "/pub", with(ftpSite(), "RETR", "501 no"), 301, "Location: /pub/", "", 0},
		{"names alone", "GET", "/pub/", with(&testorigin.FTPSite{Dirs: map[string]string{"/pub": "a.txt\r\nsub\r\n"}}, "LIST", "502 no"), 200, "", `<a href="./sub">sub</a>`, page},
		{"empty directory by 550", "GET", "/", with(ftpSite(), "NLST", "550 no files found"), 200, "", "<ul>\n</ul>", page},

		{"escapes that rules distinguish from their bytes", "GET", "/pub/c%2b%2B/%28a%29%20", ftpSite(), 301, "Location: /pub/c++/(a)%20", "", 0},
		{"no file", "GET", "/nothing", ftpSite(), 404, "Content-Type: text/plain; charset=utf-8", "The FTP server answers: 550 no such file or directory\n", page},
		{"no directory", "GET", "/nothing/", ftpSite(), 404, "", "550", page},
		{"login refused", "GET", "/pub/a.txt", with(ftpSite(), "PASS", "530 no"), 403, "", "530 no", page},
		{"no anonymous user", "GET", "/pub/a.txt", with(ftpSite(), "USER", "530 no"), 403, "", "530 no", page},
		{"fault at the login", "GET", "/pub/a.txt", with(ftpSite(), "USER", "500 OOPS"), 502, "", "500 OOPS", page},
		{"too many users", "GET", "/pub/a.txt", with(ftpSite(), "", "421 later"), 503, "", "421 later", page},
		{"too many users of that name", "GET", "/pub/a.txt", with(ftpSite(), "USER", "421 later"), 503, "", "421 later", page},
		{"busy file", "GET", "/pub/a.txt", with(ftpSite(), "RETR", "450 busy"), 502, "", "450 busy", page},
		{"550 to PASV is not about the file", "GET", "/pub/a.txt", with(ftpSite(), "EPSV", "550 no", "PASV", "550 no"), 502, "", "550 no", page},
		{"550 to PASS is not about the file", "GET", "/pub/a.txt", with(ftpSite(), "PASS", "550 no"), 502, "", "550 no", page},
		{"550 to TYPE is not about the file", "GET", "/pub/a.txt", with(ftpSite(), "TYPE", "550 no"), 502, "", "550 no", page},
		{"listing aborted", "GET", "/pub/", with(ftpSite(), "226", "426 aborted"), 502, "", "426 aborted", page},
		{"text that is not UTF-8", "GET", "/pub/a.txt", with(ftpSite(), "PASS", "530 \xff"), 403, "", "530 \uFFFD", page},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, err := askFTP(t, tt.site, tt.method, tt.path)
			if err != nil {
				t.Fatal(err)
			}
			body := readAll(t, resp)
			if tt.length == page {
				tt.length = resp.ContentLength
			}
			name, value, _ := strings.Cut(tt.header, ": ")
			if resp.StatusCode != tt.status || resp.Header.Get(name) != value {
				t.Errorf("status %d, header %v, want %d and %q", resp.StatusCode, resp.Header, tt.status, tt.header)
			}
			if announced := resp.Header.Get("Content-Length"); resp.ContentLength != tt.length || announced != "" != (tt.length >= 0) {
				t.Errorf("length %d, Content-Length %q, want %d", resp.ContentLength, announced, tt.length)
			}
			if !strings.Contains(body, tt.body) || tt.method == "HEAD" && body != "" || tt.length >= 0 && tt.method == "GET" && int64(len(body)) != tt.length {
				t.Errorf("body of %d bytes: %.500q", len(body), body)
			}
			for _, c := range tt.site.Commands() {
				if word, _, _ := strings.Cut(c, " "); tt.method == "HEAD" && slices.Contains([]string{"RETR", "LIST", "NLST", "MLSD", "EPSV", "PASV"}, word) {
					t.Errorf("HEAD sent %q", c)
				}
			}
		})
	}
}

// TestFTPCommands checks the commands that a server gets. A directory must not be an argument of
// LIST, which accepts wildcards and options.
func TestFTPCommands(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"/pub/caf%C3%A9%20%25": {"SIZE /pub/café %", "EPSV", "RETR /pub/café %", "CWD /pub/café %"},
		"/-la%20*/":            {"CWD /-la *"},
		"/pub/":                {"CWD /pub", "EPSV", "LIST", "QUIT"},
		"/":                    {"CWD /", "EPSV", "LIST", "EPSV", "NLST", "QUIT"},
		"/pub/a.txt":           {"SIZE /pub/a.txt", "EPSV", "RETR /pub/a.txt", "QUIT"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			site := ftpSite()
			resp, err := askFTP(t, site, "GET", path)
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, resp)
			got := site.Commands()
			login := []string{"USER anonymous", "PASS anonymous@", "FEAT", "TYPE I"}
			if len(got) < len(login) || !slices.Equal(got[:len(login)], login) || !isPrefix(got[len(login):], want) {
				t.Errorf("commands %q, want %q after the login", got, want)
			}
		})
	}
}

// isPrefix reports whether got begins want; a QUIT may not have arrived yet.
func isPrefix(got, want []string) bool {
	return len(got) >= len(want)-1 && len(got) <= len(want) && slices.Equal(got, want[:len(got)])
}

// TestFTPFails checks that failures have the same kinds as with HTTP.
func TestFTPFails(t *testing.T) {
	t.Parallel()
	endless := func(_, data net.Conn, _ string) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(data, strings.Repeat("-rw-r--r--   1 ftp ftp  10 Jan  2 2020 a\r\n", 100))
		}
	}
	longLine := func(_, data net.Conn, _ string) { _, _ = io.WriteString(data, strings.Repeat("x", 1<<20)) }
	listing := func(transfer func(_, data net.Conn, _ string)) *testorigin.FTPSite {
		s := ftpSite()
		s.Transfer = transfer
		return s
	}
	tests := []struct {
		name, path string
		site       *testorigin.FTPSite
		want       Kind
	}{
		{"no FTP", "/big", with(ftpSite(), "", "HTTP/1.1 400 Bad Request"), KindProtocol},
		{"nonsense to USER", "/big", with(ftpSite(), "USER", "hm"), KindProtocol},
		{"nonsense to PASV", "/big", with(ftpSite(), "EPSV", "229 hm", "PASV", "227 hm"), KindProtocol},
		{"brackets of PASV the wrong way round", "/big", with(ftpSite(), "EPSV", "502 no", "PASV", "227 )("), KindProtocol},
		{"port 0", "/big", with(ftpSite(), "EPSV", "229 (|||0|)"), KindProtocol},
		{"port above all", "/big", with(ftpSite(), "EPSV", "229 (|||65536|)"), KindProtocol},
		{"port below all", "/big", with(ftpSite(), "EPSV", "229 (|||-80|)"), KindProtocol},
		{"port of another service", "/big", with(ftpSite(), "EPSV", "229 (|||25|)"), KindForbiddenPort},
		{"port where nothing listens", "/big", with(ftpSite(), "EPSV", fmt.Sprintf("229 (|||%d|)", deadPort(t))), KindRefused},
		{"greeting without end", "/big", with(ftpSite(), "", strings.Repeat("220-hello\r\n", 1<<18)), KindHeaderSize},
		{"line without end", "/big", with(ftpSite(), "USER", "331 "+strings.Repeat("x", 1<<20)), KindHeaderSize},
		{"NUL", "/big", with(ftpSite(), "", "22\x000 ready"), KindProtocol},
		{"replies in the wrong order", "/big", with(ftpSite(), "", "230 hello"), KindProtocol},
		{"listing without end", "/pub/", listing(endless), KindListingSize},
		{"line of a listing without end", "/pub/", listing(longLine), KindProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp, err := askFTP(t, tt.site, "GET", tt.path)
			if err == nil {
				resp.Body.Close()
				t.Fatalf("status %d, want an error", resp.StatusCode)
			}
			if got := classify(err, stageHeader); got.Kind != tt.want {
				t.Errorf("%v is %s, want %s", err, got.Kind, tt.want)
			}
		})
	}
}

func deadPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestFTPBrokenTransfer checks that a client notices an incomplete file, with or without a length,
// and that the result has the cause.
func TestFTPBrokenTransfer(t *testing.T) {
	t.Parallel()
	cut := func(_, data net.Conn, content string) {
		_, _ = io.WriteString(data, content[:len(content)/2])
		_ = data.(*net.TCPConn).SetLinger(0)
	}
	tests := []struct {
		name     string
		replies  []string
		transfer func(control, data net.Conn, content string)
		want     Kind
	}{
		{"aborted", []string{"226", "426 aborted"}, nil, KindIncomplete},
		{"aborted, of unknown size", []string{"226", "426 aborted", "SIZE", "502 no"}, nil, KindIncomplete},
		{"reset", []string{"226", "426 aborted"}, cut, KindIncomplete},
		{"reset, of unknown size", []string{"226", "426 aborted", "SIZE", "502 no"}, cut, KindIncomplete},
		{"fewer bytes than announced", []string{"SIZE", "213 11"}, nil, KindIncomplete},
		{"more bytes than announced", []string{"SIZE", "213 9"}, nil, KindProtocol},
		{"nothing behind the transfer", []string{"226", ""}, nil, KindStalled},
		{"nothing behind the transfer, of unknown size", []string{"226", "", "SIZE", "502 no"}, nil, KindStalled},
		{"another reply behind the transfer", []string{"226", "200 hm"}, nil, KindIncomplete},
		{"nonsense behind the transfer", []string{"226", "hm"}, nil, KindIncomplete},
	}
	for _, proto := range []string{"h1", "h2"} {
		for _, tt := range tests {
			t.Run(proto+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				site := with(ftpSite(), tt.replies...)
				site.Transfer = tt.transfer
				g := ftpGateway(t, proto, site)
				resp, err := g.client(t).Get(g.URL + "/pub/a.txt")
				if err == nil {
					defer resp.Body.Close()
					var body []byte
					if body, err = io.ReadAll(resp.Body); err == nil {
						t.Errorf("the client read the body without an error: %q", body)
					}
				}
				res := <-g.results
				if res.Err == nil || res.Err.Kind != tt.want || res.Status != http.StatusOK || res.Dialed.Addr.String() != strings.TrimPrefix(g.site, "ftp://") {
					t.Errorf("result %+v, want %s", res, tt.want)
				}
			})
		}
	}
}

// ftpForwarder is a gateway in front of an FTP site.
type ftpForwarder struct {
	*gateway
	site string
}

func ftpGateway(t *testing.T, proto string, site *testorigin.FTPSite) *ftpForwarder {
	t.Helper()
	g := &ftpForwarder{&gateway{results: make(chan Result, 100)}, "ftp://" + testorigin.StartFTP(t, site)}
	g.forwarder = &Forwarder{Transport: newTestTransport(t, TransportConfig{ResponseHeaderTimeout: time.Second}), Name: "crawlgate"}
	base := mustURL(t, g.site)
	g.Server = startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := *r.URL
		target.Scheme, target.Host = base.Scheme, base.Host
		g.serve(w, r, &target)
	}), proto)
	return g
}

// TestFTPWhole checks that files with about the size of a buffer arrive unchanged.
func TestFTPWhole(t *testing.T) {
	t.Parallel()
	site := &testorigin.FTPSite{Files: make(map[string]string)}
	for _, n := range []int{0, 1, 2, 3, copyBufferSize - 1, copyBufferSize, copyBufferSize + 1, 2 * copyBufferSize, 1 << 20} {
		site.Files[fmt.Sprintf("/%d.bin", n)] = strings.Repeat("0123456789abcdef", n/16+1)[:n]
	}
	g := ftpGateway(t, "h1", site)
	for path, content := range site.Files {
		resp, err := g.client(t).Get(g.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp); got != content {
			t.Errorf("%s: got %d bytes, want %d unchanged ones", path, len(got), len(content))
		}
		if res := <-g.results; res.Err != nil {
			t.Errorf("%s: result %+v", path, res)
		}
	}
}

// TestFTPClientLeaves checks that a client that leaves in the middle ends both connections.
func TestFTPClientLeaves(t *testing.T) {
	t.Parallel()
	site := ftpSite()
	left := make(chan error, 1)
	site.Transfer = func(control, data net.Conn, content string) {
		_, _ = io.WriteString(data, content[:1000])
		_, err := io.Copy(io.Discard, data)
		if err == nil {
			_, err = io.Copy(io.Discard, control)
		}
		left <- err
	}
	g := ftpGateway(t, "h1", site)
	ctx, leave := context.WithCancel(t.Context())
	resp, err := g.client(t).Do(request(t, ctx, "GET", g.URL+"/big", nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 999)); err != nil { // the last byte is held back
		t.Fatal(err)
	}
	leave()
	resp.Body.Close()
	if err := <-left; err != nil && !isReset(err) {
		t.Error(err)
	}
	if res := <-g.results; res.Err == nil || res.Err.Kind != KindClientGone {
		t.Errorf("result %+v", res)
	}
}

// TestFTPTimes checks timeouts in a synctest bubble, over pipes.
func TestFTPTimes(t *testing.T) {
	t.Parallel()
	const limit = 60 * time.Second
	says := func(replies ...string) func(net.Conn) {
		return func(conn net.Conn) {
			r := bufio.NewReader(conn)
			for i, reply := range replies {
				if i > 0 {
					_, _ = r.ReadString('\n')
				}
				_, _ = io.WriteString(conn, reply+"\r\n")
			}
			_, _ = io.Copy(io.Discard, r)
		}
	}
	drips := func(text string, pause time.Duration) func(net.Conn) {
		return func(conn net.Conn) {
			for i := 0; i < len(text); i++ {
				if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}
	}
	login := []string{"220 ready", "331 pass", "230 hello", "211 none", "200 binary"}
	transfer := append(slices.Clone(login), "213 9", "229 (|||99|)", "150 comes")
	list := append(slices.Clone(login), "250 there", "229 (|||99|)", "150 comes")
	silent := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	tests := []struct {
		name, path    string
		control, data func(net.Conn)
		want          Kind
		took          time.Duration
	}{
		{"no greeting", "/a", silent, nil, KindTimeout, limit},
		{"greeting by drips", "/a", drips(strings.Repeat("2", 1000), limit-1), nil, KindTimeout, limit},
		{"no reply", "/a", says("220 ready"), nil, KindTimeout, limit},
		{"no listing", "/a/", says(list...), silent, KindTimeout, limit},
		{"listing by drips", "/a/", says(list...), drips(strings.Repeat("x", 1000), limit-1), KindTimeout, limit},
		{"no reply behind a transfer", "/a", says(transfer...), drips("123456789", 0), KindStalled, limit},
		{"transfer by drips, which the watch bounds", "/a", says(append(slices.Clone(transfer[:7]), "150 comes\r\n226 done")...), drips("123456789", limit), KindInternal, 9 * limit},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			var servers sync.WaitGroup
			dial := func(_ context.Context, _ string, _ uint16, control net.Conn) (net.Conn, error) {
				client, server := net.Pipe()
				serve := tt.control
				if control != nil {
					serve = tt.data
				}
				servers.Go(func() {
					defer server.Close()
					serve(server)
				})
				return client, nil
			}
			began := time.Now()
			resp, err := ftphttp.RoundTrip(request(t, t.Context(), "GET", "ftp://site.test"+tt.path, nil), limit, dial)
			at := stageHeader
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				at = stageBody
			}
			took := time.Since(began)
			servers.Wait()
			if err == nil && tt.want != KindInternal || err != nil && classify(err, at).Kind != tt.want {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
			}
			if took != tt.took {
				t.Errorf("%s: the failure took %s, want %s", tt.name, took, tt.took)
			}
		})
	}
}

// TestFTPGuard checks that port 21 is open to FTP connections only, and that FTP opens no other
// port.
func TestFTPGuard(t *testing.T) {
	t.Parallel()
	d := &Dialer{Guard: &guard.Guard{AllowPrivate: prefixes("127.0.0.1/32")}}
	tr := newTestTransport(t, TransportConfig{Dialer: d})
	get := func(url string) *Error {
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err == nil {
			resp.Body.Close()
			t.Fatalf("%s: status %d, want an error", url, resp.StatusCode)
		}
		return classify(err, stageConnect)
	}
	own := mustURL(t, "ftp://"+testorigin.StartFTP(t, ftpSite()))
	leads := testorigin.StartFTP(t, with(ftpSite(), "EPSV", "229 (|||"+own.Port()+"|)"))
	d.Guard.Listener = func(ap netip.AddrPort, _ bool) guard.Listener {
		if ap == proxyAddrOf(t, own) {
			return guard.ListenerOther
		}
		return guard.NoListener
	}
	for url, want := range map[string]Kind{
		"http://127.0.0.1:21/":          KindForbiddenPort,
		"ftp://127.0.0.1:25/":           KindForbiddenPort,
		"ftp://127.0.0.2/":              KindForbidden,
		"ftp://10.0.0.1/":               KindForbidden,
		"ftp://[::1]/":                  KindForbidden,
		own.String() + "/a.txt":         KindForbiddenOwn,
		"ftp://" + leads + "/pub/a.txt": KindForbiddenOwn, // as a data connection
	} {
		if got := get(url); got.Kind != want {
			t.Errorf("%s: %v, want %s", url, got, want)
		}
	}
	check := func(scheme, host string, port uint16) error {
		_, err := d.Address(t.Context(), scheme, host, port)
		return err
	}
	if err := check("ftp", "127.0.0.1", guard.FTPPort); err != nil {
		t.Error(err)
	}
	checkRefusal(t, "another address", check("ftp", "127.0.0.2", guard.FTPPort), "loopback")
	checkRefusal(t, "another port", check("ftp", "127.0.0.1", 22), guard.ClassPort)
	checkRefusal(t, "without FTP", check("http", "127.0.0.1", guard.FTPPort), guard.ClassPort)
}

func proxyAddrOf(t *testing.T, u *url.URL) netip.AddrPort {
	t.Helper()
	return netip.MustParseAddrPort(u.Host)
}

// TestFTPUpstream checks that with an upstream proxy both connections go through it, to the checked
// host. If the proxy fails, no direct connection replaces it.
func TestFTPUpstream(t *testing.T) {
	t.Parallel()
	through := func(proxy *url.URL, target string) (*http.Response, error) {
		tr := newTestTransport(t, TransportConfig{
			Dialer:    &Dialer{Guard: loopbackGuard(), Resolver: siteResolver()},
			Upstreams: []Upstream{{URL: proxy}},
		})
		return tr.RoundTrip(request(t, t.Context(), "GET", target, nil))
	}
	addr := testorigin.StartFTP(t, with(ftpSite(), "EPSV", "502 no"))
	_, port, _ := net.SplitHostPort(addr)
	target := "ftp://127.0.0.1:" + port + "/pub/a.txt"

	proxy, asked := proxyServer(t, false, 0)
	resp, err := through(mustURL(t, proxy.URL), target)
	if err != nil || readAll(t, resp) != "some text\n" {
		t.Fatalf("response %v, error %v", resp, err)
	}
	if got := asked(); len(got) != 2 || !strings.HasPrefix(got[0], "CONNECT "+addr+" ") || !strings.HasPrefix(got[1], "CONNECT 127.0.0.1:") {
		t.Errorf("the proxy got %q", got)
	}
	targets := make(chan string, 2)
	resp, err = through(withUser(t, "socks5://"+socksServer(t, targets).Listener.Addr().String()), "ftp://site.test:"+port+"/pub/a.txt")
	if err != nil || readAll(t, resp) != "some text\n" {
		t.Fatalf("response %v, error %v", resp, err)
	}
	if control, data := <-targets, <-targets; control != "u:p site.test:"+port || !strings.HasPrefix(data, "u:p site.test:") {
		t.Errorf("the SOCKS proxy got %q and %q", control, data)
	}
	for _, tt := range []struct {
		proxy, target string
		want          Kind
	}{
		{fmt.Sprintf("http://127.0.0.1:%d", deadPort(t)), target, KindUpstream},
		{proxy.URL, "ftp://10.0.0.1/", KindForbidden},
		{proxy.URL, "ftp://127.0.0.1:25/", KindForbiddenPort},
	} {
		if _, err := through(mustURL(t, tt.proxy), tt.target); err == nil || classify(err, stageConnect).Kind != tt.want {
			t.Errorf("%s: %v, want %s", tt.target, err, tt.want)
		}
	}
	if got := asked(); len(got) != 2 {
		t.Errorf("the proxy got %q, want no more requests", got)
	}
}

// TestFTPTrace checks that the hooks for the pacing of hosts are called once each, in order. A
// session whose connection is given up sends nothing over it.
func TestFTPTrace(t *testing.T) {
	t.Parallel()
	site := ftpSite()
	addr := testorigin.StartFTP(t, site)
	var calls []string
	note := func(call string) { calls = append(calls, call) }
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { note("sought") },
		GotConn: func(i httptrace.GotConnInfo) {
			dialed, _ := DialedOf(i.Conn)
			note("got " + dialed.Addr.String())
		},
		WroteRequest:         func(httptrace.WroteRequestInfo) { note("sent") },
		GotFirstResponseByte: func() { note("answered") },
	})
	tr := newTestTransport(t, TransportConfig{})
	resp, err := tr.RoundTrip(request(t, ctx, "GET", "ftp://"+addr+"/pub/", nil))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, resp)
	if want := []string{"sought", "got " + addr, "sent", "answered"}; !slices.Equal(calls, want) {
		t.Errorf("hooks %q, want %q", calls, want)
	}

	before := len(site.Commands())
	why := errors.New("the turn is missed")
	ctx, cancel := context.WithCancelCause(t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		cancel(why)
		_ = i.Conn.Close()
	}})
	if resp, err := tr.RoundTrip(request(t, ctx, "GET", "ftp://"+addr+"/pub/", nil)); err == nil {
		resp.Body.Close()
		t.Error("the request succeeded after the hook had ended it")
	}
	got := site.Commands()[before:]
	if len(got) > 0 && got[0] == "QUIT" { // the QUIT of the first session
		got = got[1:]
	}
	if len(got) > 0 {
		t.Errorf("the server got the commands %q, want none", got)
	}
}
