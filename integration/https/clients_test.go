//go:build slow

package https

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// visited is a client's report about one page.
type visited struct {
	URL    string `json:"url"`
	Status int    `json:"status"`
	Body   string `json:"body"`
	Error  string `json:"error"`
}

// secureCrawl is one client's crawl of one site.
type secureCrawl struct {
	t    *testing.T
	g    *rig.Gateway
	root string // the first page
	ca   string // file with the gateway's certificate
	http string // "1.1" or "2"
}

// TestHTTPSClients lets real clients crawl an https site through interception. They get the
// permitted pages. The gateway refuses every other request with the reason, and the site never sees
// it.
func TestHTTPSClients(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for _, tt := range []struct {
		name     string
		versions []string // of HTTP inside; the gateway chooses the version to the site
		crawl    func(*secureCrawl) []visited
	}{
		{"curl", []string{"1.1", "2"}, (*secureCrawl).byCurl},
		{"Go net/http", []string{"1.1", "2"}, (*secureCrawl).byGo},
		{"colly", []string{"1.1", "2"}, (*secureCrawl).byColly},
		{"requests", []string{"1.1"}, (*secureCrawl).byRequests},
		{"Scrapy", []string{"1.1"}, (*secureCrawl).byScrapy},
		{"undici", []string{"1.1"}, (*secureCrawl).byNode},
		{"Java HttpClient", []string{"1.1", "2"}, (*secureCrawl).byJava},
		{"Chromium", []string{"1.1", "2"}, (*secureCrawl).byChromium},
	} {
		for _, version := range tt.versions {
			t.Run(tt.name+" HTTP "+version, func(t *testing.T) {
				t.Parallel()
				site := rig.StartSecureSite(t, authority, nil)
				c := &secureCrawl{t: t, g: g, root: site.At("/"), ca: g.RootFile(), http: version}
				checkSecureCrawl(t, site, tt.crawl(c))
				checkSecureLog(t, g, site, version)
			})
		}
	}
}

// checkSecureCrawl compares what a client and the site saw with the rules.
func checkSecureCrawl(t *testing.T, site *rig.SecureSite, pages []visited) {
	t.Helper()
	got := make(map[string]visited)
	for _, p := range pages {
		got[p.URL] = p
	}
	reached := site.Targets()
	for path, allowed := range rig.SecurePages {
		p, ok := got[site.At(path)]
		switch {
		case !ok:
			t.Errorf("%s: the client did not report the page: %+v", path, pages)
		case allowed && (p.Status != http.StatusOK || !strings.Contains(p.Body, "this is "+strings.TrimSuffix(path, "?"))):
			t.Errorf("%s is allowed, but the client got %+v", path, p)
		case !allowed && (p.Status != http.StatusForbidden || !strings.Contains(p.Body, "Forbidden by robots.txt")):
			t.Errorf("%s is disallowed, but the client got %+v", path, p)
		}
		if n := countOf(reached, path); allowed && n == 0 || !allowed && n > 0 {
			t.Errorf("%s, allowed: %t, reached the site %d times", path, allowed, n)
		}
	}
}

func countOf(list []string, s string) (n int) {
	for _, e := range list {
		if e == s {
			n++
		}
	}
	return n
}

// checkSecureLog checks that each page of the client has a line with its decision and the version
// of HTTP inside.
func checkSecureLog(t *testing.T, g *rig.Gateway, site *rig.SecureSite, version string) {
	t.Helper()
	proto := map[string]string{"1.1": "HTTP/1.1", "2": "HTTP/2.0"}[version]
	for path, allowed := range rig.SecurePages {
		var line *rig.LogLine
		rig.Eventually(t, "a log line for "+path, func() bool {
			lines := g.ReadLogs()
			i := slices.IndexFunc(lines, func(l rig.LogLine) bool { return l.Request.URI == site.At(path) })
			if i >= 0 {
				line = &lines[i]
			}
			return i >= 0
		})
		want := map[bool]string{true: "allow", false: "deny"}[allowed]
		if s := line.Secure(t); line.Robots.Decision != want || !line.Robots.PathVisible || s.Request.Proto != proto ||
			s.Request.RemoteIP != "127.0.0.1" {
			t.Errorf("%s: the line is not %s over %s: %s", path, want, proto, line.Raw)
		}
	}
}

// follow crawls with a function that gets one page.
func (c *secureCrawl) follow(fetch func(url string) visited) []visited {
	c.t.Helper()
	base, err := url.Parse(c.root)
	if err != nil {
		c.t.Fatal(err)
	}
	var pages []visited
	queue := []string{c.root}
	for i := 0; i < len(queue); i++ {
		p := fetch(queue[i])
		pages = append(pages, p)
		for _, link := range rig.LinksIn(p.Body) {
			u, err := base.Parse(link)
			if err != nil {
				c.t.Fatal(err)
			}
			if !slices.Contains(queue, u.String()) {
				queue = append(queue, u.String())
			}
		}
	}
	return pages
}

func (c *secureCrawl) byGo() []visited {
	version := 1
	if c.http == "2" {
		version = 2
	}
	client := c.g.SecureClient("Reckless/1.0", version)
	return c.follow(func(url string) visited {
		a := rig.Get(c.t, client, url)
		return visited{URL: url, Status: a.Status, Body: a.Body}
	})
}

func (c *secureCrawl) byCurl() []visited {
	curl := rig.Need(c.t, "curl")
	return c.follow(func(url string) visited {
		out := c.run(exec.Command(curl, "--disable", "--silent", "--show-error", "--http"+c.http, "--max-time", "30",
			"--proxy", "http://"+c.g.Addr, "--noproxy", "", "--cacert", c.ca, "--write-out", "\n%{http_code} %{http_version}", url))
		body, trailer := out[:strings.LastIndexByte(out, '\n')], out[strings.LastIndexByte(out, '\n')+1:]
		code, version, _ := strings.Cut(trailer, " ")
		if version != c.http {
			c.t.Errorf("curl used HTTP %s inside, want %s", version, c.http)
		}
		p := visited{URL: url, Body: body}
		if err := json.Unmarshal([]byte(code), &p.Status); err != nil {
			c.t.Errorf("curl printed %q: %v", trailer, err)
		}
		return p
	})
}

// program runs one of the clients in the folder of that name. All have the same arguments and
// output.
func (c *secureCrawl) program(cmd *exec.Cmd) []visited {
	c.t.Helper()
	cmd.Args = append(cmd.Args, "http://"+c.g.Addr, c.ca, c.http, c.root)
	var pages []visited
	for line := range strings.Lines(c.run(cmd)) {
		var p visited
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			c.t.Fatalf("%s printed %q: %v", cmd.Path, line, err)
		}
		pages = append(pages, p)
	}
	return pages
}

// run runs a program for a bounded time and returns its output.
func (c *secureCrawl) run(cmd *exec.Cmd) string {
	c.t.Helper()
	return rig.RunBounded(c.t, cmd)
}

func (c *secureCrawl) byColly() []visited {
	dir := c.t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "colly"), ".")
	build.Dir = testdocs.Path("integration", "clients", "colly")
	c.run(build)
	return c.program(exec.Command(filepath.Join(dir, "colly")))
}

func (c *secureCrawl) byPython(module, script string) []visited {
	rig.Need(c.t, rig.SystemPython)
	if err := exec.Command(rig.SystemPython, "-c", "import "+module).Run(); err != nil {
		rig.Missing(c.t, "Python's "+module)
	}
	cmd := exec.Command(rig.SystemPython, testdocs.Path("integration", "clients", "python", script))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return c.program(cmd)
}

func (c *secureCrawl) byRequests() []visited { return c.byPython("requests", "crawl_requests.py") }
func (c *secureCrawl) byScrapy() []visited   { return c.byPython("scrapy", "crawl_scrapy.py") }

func (c *secureCrawl) byNode() []visited {
	cmd := exec.Command(rig.Need(c.t, "node"), "crawl.mjs")
	cmd.Dir = rig.NodePrograms(c.t, testdocs.Path("integration", "clients", "node"))
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+c.ca)
	return c.program(cmd)
}

func (c *secureCrawl) byJava() []visited {
	java, keytool := rig.Need(c.t, "java"), rig.Need(c.t, "keytool")
	store := filepath.Join(c.t.TempDir(), "trust.p12")
	c.run(exec.Command(keytool, "-importcert", "-noprompt", "-alias", "crawlgate", "-file", c.ca,
		"-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit"))
	return c.program(exec.Command(java, "-XX:TieredStopAtLevel=1", "-Djavax.net.ssl.trustStore="+store,
		"-Djavax.net.ssl.trustStorePassword=changeit", testdocs.Path("integration", "clients", "java", "Crawl.java")))
}

func (c *secureCrawl) byChromium() []visited {
	return c.browse(rig.StartChromium(c.t, "http://"+c.g.Addr, c.http, c.ca))
}

// browse visits the pages like a person. A browser shows no status, but the gateway's own page has
// it in its heading.
func (c *secureCrawl) browse(b *rig.Chromium) []visited {
	return c.follow(func(url string) visited {
		p := visited{URL: url, Body: b.Visit(url), Status: http.StatusOK}
		if strings.Contains(p.Body, "<h1>403 ") {
			p.Status = http.StatusForbidden
		}
		return p
	})
}
