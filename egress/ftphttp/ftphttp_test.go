package ftphttp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jlaffaye/ftp"
	"golang.org/x/net/html"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// ask requests a directory of a server.
func ask(t *testing.T, site *testorigin.FTPSite, path string, accept ...string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "ftp://"+testorigin.StartFTP(t, site)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Accept"] = accept
	return RoundTrip(r, time.Minute, func(ctx context.Context, host string, port uint16, _ net.Conn) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	})
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parsed(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestFTPListing checks that the link of each kind of name leads exactly to that name, and that no
// byte of a name becomes markup.
func TestFTPListing(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	names := []string{"a b", "c++", "100%", "#x", "javascript:alert(1)", "<script>alert(1)", `"onload="x`, "a&amp;b", "caf\xe9", "café", "-rf", "~x", "a'b", "%2e%2e", "[1]"}
	for _, name := range slices.Concat(names, []string{".", "..", "../up", "/etc", "a/b", "a\\b", "a\x01b", "a\x7fb"}) {
		lines.WriteString("type=file;size=1; " + name + "\r\n")
	}
	site := &testorigin.FTPSite{
		Dirs:    map[string]string{"/x&y": lines.String()},
		Replies: map[string]string{"FEAT": "211-has\r\n MLST type*;size*;\r\n211 end"},
	}
	resp, err := ask(t, site, "/x&y/", "text/html", "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	links, elements := pageOf(t, read(t, resp))
	base := parsed(t, "ftp://site.test/x&y/")
	var got []string
	for _, link := range links {
		u, err := base.Parse(link)
		if err != nil || u.Scheme != "ftp" || u.Host != "site.test" || u.RawQuery != "" || u.Fragment != "" || spelling.Replace(u.EscapedPath()) != u.EscapedPath() {
			t.Errorf("link %q: %v", link, err)
			continue
		}
		got = append(got, strings.TrimPrefix(u.Path, "/x&y/"))
	}
	if !slices.Equal(got, names) {
		t.Errorf("links to %q, want %q", got, names)
	}
	if want := []string{"html", "head", "meta", "title", "body", "h1", "ul", "li", "a"}; !slices.Equal(elements, want) {
		t.Errorf("elements %q, want %q", elements, want)
	}

	resp, err = ask(t, &testorigin.FTPSite{Dirs: map[string]string{
		"/pub": "-rw-r--r--   1 ftp ftp  10 Jan  2 2020 a.txt\r\ndrwxr-xr-x   2 ftp ftp  10 Jan  2 2020 sub\r\nlrwxrwxrwx   1 ftp ftp  10 Jan  2 2020 link -> /etc\r\n",
	}}, "/pub/", "text/plain, */*;q=0.5")
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, resp); text != "a.txt\nsub/\nlink\n" || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.Header.Get("Vary") != "Accept" {
		t.Errorf("as text: %q, header %v", text, resp.Header)
	}
}

// pageOf returns the links of a page, and its kinds of elements in the order of their first use.
func pageOf(t *testing.T, page string) (links, elements []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if !slices.Contains(elements, n.Data) {
			elements = append(elements, n.Data)
		}
		for _, a := range n.Attr {
			switch a.Key {
			case "href":
				links = append(links, a.Val)
			case "charset":
			default:
				t.Errorf("the page has the attribute %s", a.Key)
			}
		}
	}
	return links, elements
}

// FuzzFTPListing checks that a page has only its own elements for any listing of a server, and that
// every link leads into the directory.
func FuzzFTPListing(f *testing.F) {
	f.Add("a b", "javascript:x", true)
	f.Add("<script>", "../x", false)
	f.Add("%2e%2e", "a\"b", false)
	f.Fuzz(func(t *testing.T, first, second string, isDir bool) {
		entries := []*ftp.Entry{{Name: first}, {Name: second}}
		if isDir {
			entries[0].Type = ftp.EntryTypeFolder
		}
		page := htmlPage("/d/", entries)
		if !utf8.ValidString(page) {
			t.Errorf("the page is not UTF-8: %q", page)
		}
		links, elements := pageOf(t, page)
		if len(elements) > 9 {
			t.Errorf("the page has the elements %q", elements)
		}
		for _, link := range links {
			u, err := parsed(t, "ftp://site.test/d/").Parse(link)
			if err != nil || u.Host != "site.test" || u.Scheme != "ftp" || !strings.HasPrefix(u.EscapedPath(), "/d/") || strings.Count(strings.TrimSuffix(u.Path, "/"), "/") != 2 {
				t.Errorf("link %q leads to %v, %v", link, u, err)
			}
		}
	})
}

// FuzzFTPReplies checks that a session ends for any replies of a server, with an error or with an
// answer that can be read.
func FuzzFTPReplies(f *testing.F) {
	const login = "220 ready\r\n331 pass\r\n230 hello\r\n211-has\r\n MLST\r\n MDTM\r\n211 end\r\n200 binary\r\n"
	f.Add(login+"213 5\r\n213 20200102030405\r\n229 (|||99|)\r\n150 comes\r\n226 done\r\n", "12345", "/a")
	f.Add(login+"213 9\r\n550 no\r\n502 no\r\n227 )(\r\n", "", "/a")
	f.Add(login+"250 there\r\n229 (|||99|)\r\n150 comes\r\n226 done\r\n", "type=dir;size=1; a\r\n", "/a/")
	f.Add(login+"250 there\r\n502 no\r\n227 (1,2,3,4,5,6)\r\n150 comes\r\n226 done\r\n", "drwxr-xr-x 2 0 0 10 Jan  2 2020 sub\r\n", "/a/")
	f.Add("421 later\r\n", "", "/")
	f.Fuzz(func(t *testing.T, control, data, path string) {
		u, err := url.Parse("ftp://site.test/" + path)
		if err != nil {
			return
		}
		var servers sync.WaitGroup
		defer servers.Wait()
		dial := func(_ context.Context, _ string, _ uint16, beside net.Conn) (net.Conn, error) {
			text := control
			if beside != nil {
				text = data
			}
			client, server := net.Pipe()
			servers.Go(func() { _, _ = io.Copy(io.Discard, server) })
			servers.Go(func() {
				_, _ = io.WriteString(server, text)
				_ = server.Close()
			})
			return client, nil
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		if err != nil {
			return
		}
		resp, err := RoundTrip(r, time.Minute, dial)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
			t.Errorf("the body has %d bytes, the Content-Length is %d", n, resp.ContentLength)
		}
	})
}
