//go:build slow

package clients

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// clientPage describes a client. docs/clients has a page of its name, and examples/clients a
// project.
type clientPage struct {
	name    string
	needs   []string                       // programs
	python  string                         // a required module of the system's Python
	prepare func(t *testing.T, dir string) // the copy of the project, before the page's commands
	// resolves says that the client resolves the site's name, and bypasses the proxy for a loopback
	// address. Its name server knows no name, so that a direct request fails.
	resolves bool
}

// clientPages are the pages that run here. TestClientPagesAreComplete of the root package checks
// that none is missing.
var clientPages = []clientPage{
	{name: "aiohttp", needs: []string{"curl"}, python: "aiohttp"},
	{name: "axios", needs: []string{"node", "npm", "curl"}},
	{name: "colly", needs: []string{"go", "curl"}, prepare: goModules},
	{name: "crawlee-cheerio", needs: []string{"node", "npm", "curl"}},
	{name: "crawlee-playwright", needs: []string{"node", "npm", "chromium", "certutil", "curl"}},
	{name: "curl", needs: []string{"curl"}},
	{name: "go", needs: []string{"go", "curl"}},
	{name: "got", needs: []string{"node", "npm", "curl"}},
	{name: "httpx", needs: []string{"curl"}, python: "httpx"},
	{name: "java", needs: []string{"java", "keytool", "curl"}},
	{name: "node-fetch", needs: []string{"node", "npm", "curl"}},
	{name: "php", needs: []string{"php", "curl"}},
	{name: "playwright", needs: []string{"node", "npm", "chromium", "certutil", "curl"}},
	{name: "puppeteer", needs: []string{"node", "npm", "chromium", "certutil", "curl"}},
	{name: "requests", needs: []string{"curl"}, python: "requests"},
	{name: "ruby", needs: []string{"ruby", "curl"}, resolves: true},
	{name: "scrapy", needs: []string{"scrapy", "curl"}},
	{name: "selenium", needs: []string{"chromium", "chromedriver", "certutil", "curl"}, python: "selenium"},
	{name: "wget", needs: []string{"wget", "curl"}},
}

// plainClients are frameworks with the proxy as their only setting.
var plainClients = []struct {
	name    string
	needs   []string
	python  string
	prepare func(t *testing.T, dir string)
	folder  string // the project, below the root
	command string // URL stands for the first page
	loses   bool   // it loses most pages of a large slow site, as the first line of its page says
}{
	{name: "colly", needs: []string{"go"}, prepare: goModules, folder: "integration/clients/colly", command: "go build -o crawl ./plain; ./crawl URL"},
	{
		name: "crawlee-cheerio", needs: []string{"node", "npm"}, folder: "examples/clients/crawlee-cheerio", prepare: crawleeWithoutSettings,
		command: "node plain-cheerio.mjs URL", loses: true,
	},
	{
		name: "crawlee-playwright", needs: []string{"node", "npm", "chromium"}, folder: "examples/clients/crawlee-playwright",
		prepare: crawleeWithoutSettings, command: "node plain-playwright.mjs URL",
	},
	{name: "requests", python: "requests", folder: "integration/clients/python", command: "python3 plain_requests.py URL"},
	{name: "scrapy", needs: []string{"scrapy"}, folder: "examples/clients/scrapy", command: "rm scrapy.cfg; scrapy runspider pages.py -a urls=URL"},
	{name: "wget", needs: []string{"wget"}, folder: "examples/clients/wget", command: "wget --recursive URL"},
}

// crawlPlan is the size and the speed of the sites of these tests. The defaults are small;
// CRAWLGATE_CLIENT_PAGES=101 and CRAWLGATE_CLIENT_DELAY=3 reproduce the table in docs/clients.
type crawlPlan struct {
	pages      int
	delay      time.Duration
	retryAfter int // seconds
	bound      time.Duration
	full       bool
}

func planCrawl(t *testing.T) crawlPlan {
	t.Helper()
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
		if err != nil || n < 1 {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	p := crawlPlan{pages: number("CRAWLGATE_CLIENT_PAGES", 11), retryAfter: 2, bound: 150 * time.Second}
	p.delay = time.Duration(number("CRAWLGATE_CLIENT_DELAY", 1)) * time.Second
	if os.Getenv("CRAWLGATE_CLIENT_PAGES") != "" {
		p.full, p.retryAfter = true, 20
		p.bound += 2 * time.Duration(p.pages) * p.delay
	}
	return p
}

// clientSites are the sites of one client: one with a Crawl-delay, one with https, and one that
// answers 429 once.
type clientSites struct {
	slow, secure, busy *testorigin.Site
}

func (s clientSites) all() []*testorigin.Site { return []*testorigin.Site{s.slow, s.secure, s.busy} }

// urls returns the pages to start from.
func (s clientSites) urls() string {
	return s.slow.URL("/") + " " + s.secure.URL("/") + " " + s.busy.URL("/")
}

// clientRig is a gateway in front of the sites of all clients, and two places to run clients. In
// one of them the names of the sites lead to the sites, which then see a client that bypasses the
// gateway. In the other no name resolves.
type clientRig struct {
	*rig.Gateway
	plan         crawlPlan
	sites        map[string]clientSites
	named, blind *rig.FakeDNS
}

// throughGateway is a field that marks requests from the gateway.
const throughGateway = "X-Through"

func startClientRig(t *testing.T, config rig.Config, clients ...string) *clientRig {
	t.Helper()
	r := &clientRig{plan: planCrawl(t), sites: make(map[string]clientSites)}
	origins := testorigin.Start(t, testorigin.Config{})
	names := make(map[string][]string)
	add := func(scheme, host string, pages int, delay string) *testorigin.Site {
		paths := []string{"/closed/a", "/closed/b"}
		for i := range pages - 1 {
			paths = append(paths, fmt.Sprintf("/page-%d", i+1))
		}
		site := origins.Site(t, testorigin.SiteConfig{Scheme: scheme, Host: host, Paths: paths})
		site.SetRobots(testorigin.OK("User-agent: *\n" + delay + "Disallow: /closed/\n"))
		site.SetPath("/favicon.ico", testorigin.Status(http.StatusNotFound)) // browsers request it after each page
		n := len(names) + 1
		names[host] = []string{fmt.Sprintf("127.0.%d.%d", n>>8, n&0xff)} // as they were started
		return site
	}
	for _, name := range clients {
		sites := clientSites{
			slow:   add("http", "slow."+name+".test", r.plan.pages, fmt.Sprintf("Crawl-delay: %g\n", r.plan.delay.Seconds())),
			secure: add("https", "secure."+name+".test", min(r.plan.pages, 21), ""),
			busy:   add("http", "busy."+name+".test", min(r.plan.pages, 21), ""),
		}
		tooMany := testorigin.Response{
			Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {strconv.Itoa(r.plan.retryAfter)}},
		}
		sites.busy.SetPath("/page-5", testorigin.Respond(tooMany).ThenPages())
		r.sites[name] = sites
	}
	r.named, r.blind = rig.StartDNS(t, "", names), rig.StartDNS(t, "", nil)
	config.Egress, config.Wrap, config.Around = "trust_ca "+rig.CAFile(t, origins), r.named.Command, "request_header "+throughGateway+" yes"
	r.Gateway = rig.New(t, config)
	return r
}

// run runs a shell command in a folder, with a new home directory and no other proxy, and returns
// its output.
func (r *clientRig) run(t *testing.T, dir, script string, place *rig.FakeDNS) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.plan.bound)
	defer cancel()
	words := append(slices.Clone(place.Command), "sh", "-eu", "-c", script)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second // do not wait for children that hold the pipes
	cmd.Env = clientEnvironment(t)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Errorf("%v after %v:\n%s\n%s", err, time.Since(began), script, out.Bytes())
	}
	return out.String()
}

// clientEnvironment returns this process's environment without settings of proxies and
// certificates. It has a new home directory, the system's Python, and Go's caches, which would
// otherwise be in the home directory.
func clientEnvironment(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	caches := strings.Fields(string(out))
	if err != nil || len(caches) != 2 {
		t.Fatalf("go env: %v: %s", err, out)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		name = strings.ToLower(name)
		return strings.HasSuffix(name, "_proxy") || strings.Contains(name, "_ca_") || strings.HasPrefix(name, "ssl_cert_")
	})
	return append(env, "HOME="+t.TempDir(), "PATH=/usr/bin:"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
		"GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
}

// needs skips a test whose client is not installed. In CI the test fails.
func needs(t *testing.T, programs []string, module string) {
	t.Helper()
	for _, program := range programs {
		rig.Need(t, program)
	}
	if module == "" {
		return
	}
	if err := exec.CommandContext(t.Context(), rig.Need(t, rig.SystemPython), "-c", "import "+module).Run(); err != nil {
		rig.Missing(t, "Python's "+module)
	}
}

// project copies a folder of the repository to the same place in a new one, and returns its path.
func project(t *testing.T, folder string, prepare func(t *testing.T, dir string)) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, folder)
	if err := os.CopyFS(dir, os.DirFS(testdocs.Path(folder))); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(t, dir)
	}
	return root
}

// goModules downloads the modules of a project, because the network of the client has none.
func goModules(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("downloading the modules of %s: %v: %s", dir, err, out)
	}
}

// typedOn returns the first shell block of a client's page, which is the whole way to a crawl, and
// the second if there is one: the test of one page, in the same shell.
func typedOn(t *testing.T, page string) (crawl, test string) {
	t.Helper()
	blocks := strings.Split(testdocs.Text(t, filepath.Join("clients", page+".md")), "```sh\n")[1:]
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```\n")
	}
	blocks = append(blocks, "", "")
	for _, want := range []string{"cd examples/clients/" + page + "\n", "GATEWAY:3128", "https://example.com/"} {
		if !strings.Contains(blocks[0], want) {
			t.Fatalf("the first block of docs/clients/%s.md lacks %q:\n%s", page, want, blocks[0])
		}
	}
	return blocks[0], blocks[1]
}

// crawl types the commands of a client's page, and checks that the client gets all pages of its
// sites.
func (r *clientRig) crawl(t *testing.T, c clientPage) {
	t.Helper()
	needs(t, c.needs, c.python)
	sites, place := r.sites[c.name], r.named
	if c.resolves {
		place = r.blind
	}
	typed, test := typedOn(t, c.name)
	typed = strings.ReplaceAll(typed, "https://example.com/", sites.urls())
	host, port, _ := strings.Cut(r.Addr, ":")
	script := strings.NewReplacer("GATEWAY", host, "3128", port, "https://example.com/", sites.secure.URL("/"), "SECRET", rig.RightPassword).
		Replace(typed + test)
	dir := project(t, filepath.Join("examples", "clients", c.name), c.prepare)
	script = installed(t, dir, script)
	began := time.Now()
	out := r.run(t, dir, script, place)
	for _, site := range sites.all() {
		checkClientSite(t, r.plan, site, 0, began)
	}
	const decision = "Crawlgate-Decision"
	if strings.Contains(testdocs.Text(t, filepath.Join("clients", c.name+".md")), decision) && !strings.Contains(out, "allow; reason=") {
		t.Errorf("the page names %s, but its commands do not print it", decision)
	}
	if t.Failed() {
		t.Logf("the output was:\n%s", out)
	}
}

// docAgents returns the agents that the pages name.
func docAgents(t *testing.T) string {
	t.Helper()
	return "agent examplebot\nagent browserbot {\ncredential browserbot " + rig.Hashed(t, "argon2id") + "\n}"
}

// TestClientPages types the commands of each page of docs/clients, against sites with a
// Crawl-delay, with https, and with a 429. Each client gets every permitted page in time and no
// disallowed one. The sites get requests only through the gateway.
func TestClientPages(t *testing.T) { //nolint:tparallel // rig.LoadsMachine: it takes turns with other tests
	rig.LoadsMachine(t)
	var names []string
	for _, c := range clientPages {
		names = append(names, c.name)
	}
	r := startClientRig(t, rig.Config{Site: docAgents(t)}, names...)
	t.Cleanup(func() { checkBrowserCalls(t, r.Gateway, false) }) // before the gateway stops, and after all clients
	for _, c := range clientPages {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r.crawl(t, c)
		})
	}
}

// TestScrapyComesBack holds requests for so short a time that the gateway refuses most of Scrapy's
// eight concurrent ones. The middleware of its page repeats them after Retry-After, and other sites
// do not wait.
func TestScrapyComesBack(t *testing.T) {
	t.Parallel()
	r := startClientRig(t, rig.Config{Engine: "pace {\nwait 1s\n}", Site: docAgents(t)}, "scrapy")
	r.crawl(t, clientPages[slices.IndexFunc(clientPages, func(c clientPage) bool { return c.name == "scrapy" })])
	refused := 0
	for _, l := range r.ReadLogs() {
		if l.Status == http.StatusTooManyRequests && l.Robots.Reason == enforce.ReasonRateLimited {
			refused++
		}
	}
	last := func(site *testorigin.Site) time.Time {
		e := site.PageExchanges()
		return e[len(e)-1].Arrived
	}
	if slow, busy := last(r.sites["scrapy"].slow), last(r.sites["scrapy"].busy); refused < 5 || slow.Before(busy) {
		t.Errorf("%d requests were refused; the slow site was finished %v after the fast one", refused, slow.Sub(busy))
	}
}

// TestPlainClients lets frameworks with the proxy as their only setting crawl a site with a
// Crawl-delay. A company that changes only that setting gets 95 of 101 pages. The crawls mostly
// wait, so the browsers of browsersOwnCalls run beside them.
func TestPlainClients(t *testing.T) { //nolint:tparallel // rig.LoadsMachine: it takes turns with other tests
	rig.LoadsMachine(t)
	var names []string
	for _, c := range plainClients {
		names = append(names, c.name)
	}
	t.Run("browsers' own calls", browsersOwnCalls)
	r := startClientRig(t, rig.Config{}, names...)
	for _, c := range plainClients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			needs(t, c.needs, c.python)
			site := r.sites[c.name].slow
			proxy := fmt.Sprintf("export http_proxy=http://%s https_proxy=http://%[1]s HTTP_PROXY=http://%[1]s HTTPS_PROXY=http://%[1]s\n", r.Addr)
			script := fmt.Sprintf("cd %s\n", c.folder) + proxy + strings.ReplaceAll(c.command, "URL", site.URL("/"))
			dir := project(t, c.folder, c.prepare)
			began := time.Now()
			out := r.run(t, dir, script, r.named)
			plan, mayLose := r.plan, r.plan.pages*6/101
			if plan.full && c.loses {
				mayLose = plan.pages
			}
			plan.full = false // the time is not bounded
			checkClientSite(t, plan, site, mayLose, began)
			if t.Failed() {
				t.Logf("the output was:\n%s", out)
			}
		})
	}
}

// checkClientSite checks a client's requests by the site's record and clock. mayLose pages may be
// missing.
func checkClientSite(t *testing.T, plan crawlPlan, site *testorigin.Site, mayLose int, began time.Time) {
	t.Helper()
	if site.Dropped() > 0 {
		t.Fatal("the site's record is incomplete")
	}
	want, delay := plan.pages, plan.delay
	if !strings.HasPrefix(site.Origin().Host, "slow.") {
		want, delay = min(want, 21), 0
	}
	exchanges := site.PageExchanges()
	got := make(map[string]bool)
	last := began
	for _, e := range exchanges {
		if e.Header.Get(throughGateway) == "" {
			t.Errorf("%s%s did not come through the gateway: %v", site.Origin(), e.Target, e.Header)
		}
		if strings.HasPrefix(e.Path, "/closed/") {
			t.Errorf("%s%s is disallowed, but was requested", site.Origin(), e.Target)
		}
		if e.Status == http.StatusOK && (e.Path == "/" || strings.HasPrefix(e.Path, "/page-")) {
			got[e.Path] = true
			last = slices.MaxFunc([]time.Time{last, e.Arrived}, time.Time.Compare)
		}
	}
	took := last.Sub(began)
	least := rig.LeastGap(exchanges)
	t.Logf("%s: %d of %d pages by %d requests, the smallest gap %v, the last page after %.1f s", site.Origin(), len(got), want, len(exchanges),
		least.Round(time.Millisecond), took.Seconds())
	if len(got) < want-mayLose {
		t.Errorf("%s: got %d pages, want %d", site.Origin(), len(got), want)
	}
	if least < delay {
		t.Errorf("%s: two requests came %v apart, want at least the Crawl-delay of %v", site.Origin(), least, delay)
	}
	if limit := 11 * time.Duration(want) * delay / 10; plan.full && delay > 0 && took > limit {
		t.Errorf("%s: the crawl took %v, want at most %v", site.Origin(), took, limit)
	}
}
