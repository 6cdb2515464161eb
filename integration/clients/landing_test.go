//go:build slow

package clients

import (
	"bytes"
	"context"
	"errors"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// landingClient is a client as the gateway's page shows it.
type landingClient struct {
	name  string
	lines string // all lines to type
	said  string
	page  string // the link to more
}

// landingText returns the clients of the page in plain text.
func landingText(page string) (all []landingClient) {
	for section := range strings.SplitSeq(page, "\n## ") {
		name, rest, _ := strings.Cut(section, "\n")
		c := landingClient{name: name}
		for part := range strings.SplitSeq(strings.TrimSpace(rest), "\n\n") {
			switch {
			case strings.HasPrefix(part, "# "):
				c.said += strings.ReplaceAll(part[2:], "\n#   ", " ") + "\n"
			case strings.HasPrefix(part, "http"):
				c.page = part
			default:
				c.lines += part + "\n"
			}
		}
		all = append(all, c)
	}
	return all[1:]
}

var landingParts = regexp.MustCompile(`(?s)<(summary|p|pre)>(.*?)</`)

// landingHTML returns the clients of the page in HTML.
func landingHTML(page string) (all []landingClient) {
	for section := range strings.SplitSeq(page, "<details") {
		var c landingClient
		for _, m := range landingParts.FindAllStringSubmatch(section, -1) {
			text := html.UnescapeString(m[2])
			_, link, isLink := strings.Cut(text, `<a href="`)
			switch {
			case m[1] == "summary":
				c.name = text
			case m[1] == "pre":
				c.lines += text + "\n"
			case isLink:
				c.page, _, _ = strings.Cut(link, `"`)
			default:
				c.said += text + "\n"
			}
		}
		all = append(all, c)
	}
	return all[1:]
}

// TestPageHasTheSameInBothForms checks that a browser gets exactly the text that a program gets,
// and that each client has a page of the project.
func TestPageHasTheSameInBothForms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		site string
		ca   bool // clients need the certificate
	}{{"", true}, {"connect tunnel", false}} {
		g := rig.New(t, rig.Config{Site: tt.site})
		text := landingText(g.Own("/").Body)
		page := g.Browse("/")
		if shown := landingHTML(page.Body); !slices.Equal(shown, text) || len(text) < 22 {
			for i := range min(len(shown), len(text)) {
				if shown[i] != text[i] {
					t.Errorf("the HTML has\n%q\nand the text has\n%q", shown[i], text[i])
				}
			}
			t.Errorf("%d clients as HTML, %d as text", len(shown), len(text))
		}
		for _, c := range text {
			for _, ca := range []string{"ca.crt", "bundle.crt", "certutil", "CERT", "trustStore"} {
				if all := c.lines + c.said; !tt.ca && strings.Contains(all, ca) {
					t.Errorf("%q: %s has the certificate, which no client needs here: %s", tt.site, c.name, all)
				}
			}
			if strings.Contains(c.lines+c.said, "<no value>") || strings.Contains(c.lines, "\n\n") {
				t.Errorf("%q: a value or a line is missing in %+v", tt.site, c)
			}
			if path, own := strings.CutPrefix(c.page, "http://"+g.Addr); own {
				if a := g.Own(path); a.Status != http.StatusOK || !strings.HasPrefix(a.Body, "# ") {
					t.Errorf("%s: %q: status %d", c.name, c.page, a.Status)
				}
				continue
			}
			file, ours := strings.CutPrefix(c.page, "https://github.com/crawlgate/crawlgate/blob/main/")
			if _, err := os.Stat(testdocs.Path(file)); c.name != "All clients" && (err != nil || !ours) {
				t.Errorf("%s: %q is no page of the project: %v", c.name, c.page, err)
			}
		}
	}
}

// typedClients has what each client of the page needs to be tested.
var typedClients = map[string]struct {
	programs []string
	module   string // of the system's Python
	packages string // of npm: the project whose lock file has them
	nothing  bool   // the page has no lines to type
	silent   bool   // it prints the page, not the decision
}{
	"curl":               {programs: []string{"curl"}},
	"wget":               {programs: []string{"wget"}},
	"Scrapy":             {programs: []string{"scrapy"}},
	"requests":           {module: "requests"},
	"httpx":              {module: "httpx"},
	"aiohttp":            {module: "aiohttp"},
	"Go":                 {programs: []string{"go"}},
	"Colly":              {nothing: true}, // like Go
	"Node fetch":         {programs: []string{"node"}, packages: "node-fetch"},
	"axios":              {programs: []string{"node"}, packages: "axios"},
	"got":                {programs: []string{"node"}, packages: "got"},
	"Crawlee Cheerio":    {programs: []string{"node"}, packages: "crawlee-cheerio"},
	"Chromium":           {programs: []string{"chromium", "certutil"}, silent: true},
	"Playwright":         {programs: []string{"node", "chromium", "certutil"}, packages: "playwright"},
	"Puppeteer":          {programs: []string{"node", "chromium", "certutil"}, packages: "puppeteer"},
	"Crawlee Playwright": {programs: []string{"node", "chromium", "certutil"}, packages: "crawlee-playwright"},
	"Selenium":           {programs: []string{"chromium", "chromedriver", "certutil"}, module: "selenium", silent: true},
	"Java":               {programs: []string{"java", "keytool"}},
	"Ruby":               {programs: []string{"ruby"}},
	"PHP":                {programs: []string{"php"}},
	".NET":               {nothing: true}, // not in Debian
	"Rust":               {nothing: true},
}

// TestPageAsTyped types the lines of the gateway's page in a new home directory, once for https and
// once for http. The site has the name and the ports of the page, and only the gateway can find it.
func TestPageAsTyped(t *testing.T) { //nolint:tparallel // rig.LoadsMachine: it takes turns with other tests
	rig.LoadsMachine(t)
	dns, blind := rig.StartDNS(t, "", map[string][]string{"example.com": {typedAddress}}), rig.StartDNS(t, "", nil)
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Wrap: dns.Command, Around: "request_header " + throughGateway + " yes"}.Trusting(authority))
	site := startTyped(t, authority)
	page := landingText(g.Own("/").Body)
	all, clients := page[0], page[1:]

	t.Run("All clients", func(t *testing.T) {
		t.Parallel()
		if out := typeLines(t, blind, t.TempDir(), all.lines); !strings.Contains(out, "ok     refused: https://") || strings.Contains(out, "no other") {
			t.Errorf("%s\nprinted\n%s", all.lines, out)
		}
	})
	environment := all.lines[:strings.Index(all.lines, "curl -fs --noproxy")] // without the test
	browser := ""
	for _, c := range clients {
		needs, known := typedClients[c.name]
		if !known || needs.nothing != (c.lines == "") {
			t.Errorf("%s is unknown, or typedClients is wrong about its lines to type:\n%s", c.name, c.lines)
		}
		if trust, _, has := strings.Cut(c.lines, "chromium --headless"); has {
			browser = trust
		}
		if needs.nothing {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			typeClient(t, site, blind, c, environment, browser)
		})
	}
	if len(clients) != len(typedClients) {
		t.Errorf("the page has %d clients, want %d", len(clients), len(typedClients))
	}
}

// typeClient types the lines of a client, once for https and once for http.
func typeClient(t *testing.T, site *rig.SecureSite, place *rig.FakeDNS, c landingClient, environment, browser string) {
	t.Helper()
	client := typedClients[c.name]
	needs(t, client.programs, client.module)
	dir := t.TempDir()
	lines := strings.Split(c.lines, "\n")
	if client.packages != "" {
		dir = rig.NodePrograms(t, testdocs.Path("examples", "clients", client.packages))
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "npm install ") })
	}
	script := strings.Join(lines, "\n")
	if slices.Contains(client.programs, "certutil") && !strings.Contains(script, "certutil") {
		script = browser + script
	}
	name := "AcmeBot/1.0-" + strings.ReplaceAll(c.name, " ", "-")
	script = strings.ReplaceAll(script, "AcmeBot/1.0", name)
	for _, scheme := range []string{"https", "http"} {
		script := environment + strings.ReplaceAll(script, "https://example.com/", scheme+"://example.com/")
		upgraded := requestsBy(site, name, "https")
		out := typeLines(t, place, dir, script)
		if scheme == "https" || !slices.Contains(client.programs, "chromium") {
			upgraded = requestsBy(site, name, "https") // requests by https do not count for http; Chromium upgrades some
		}
		if scheme == "https" && upgraded == 0 || scheme == "http" && requestsBy(site, name, "http")+requestsBy(site, name, "https") == upgraded {
			t.Errorf("%s: the site got no request through the gateway. This was typed:\n%s\nand printed:\n%s", scheme, script, out)
		}
		if want := map[bool]string{false: "allow; reason=", true: "this is /"}[client.silent]; !strings.Contains(out, want) {
			t.Errorf("%s: %q is not in what this prints:\n%s\n%s", scheme, want, script, out)
		}
		if err := os.RemoveAll(filepath.Join(dir, "storage")); err != nil { // Crawlee requests no page of its storage again
			t.Error(err)
		}
	}
}

// typeLines runs lines in a shell and returns its output.
func typeLines(t *testing.T, place *rig.FakeDNS, dir, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// Chromium has no sandbox for root. Debian's chromium reads switches from this folder, and the
	// name server of a test is in its own mount namespace.
	flags := filepath.Join(t.TempDir(), "flags")
	if err := os.WriteFile(flags, []byte(`CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"`), 0o644); err != nil {
		t.Fatal(err)
	}
	as := `! test -e /etc/chromium.d/default-flags || mount --bind "$0" /etc/chromium.d/default-flags; exec sh -eu -c "$1"`
	words := append(slices.Clone(place.Command), "sh", "-c", as, flags, script)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.WaitDelay, cmd.Env = dir, time.Second, clientEnvironment(t)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%v:\n%s\nprinted\n%s", err, script, out.Bytes())
	}
	return out.String()
}

// typedAddress is the address of the site that all clients of the page request.
const typedAddress = "127.80.4.43"

// startTyped starts a site at the ports of http and https. It does not count requests that bypass
// the gateway.
func startTyped(t *testing.T, authority *rig.TestCA) *rig.SecureSite {
	t.Helper()
	site := rig.NewSecureSite(t, authority, nil)
	for port, l := range map[string]*net.Listener{"443": &site.Listener, "80": nil} {
		at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", typedAddress+":"+port)
		if errors.Is(err, os.ErrPermission) {
			rig.Missing(t, "the right to listen at port "+port)
		}
		if err != nil {
			t.Fatal(err)
		}
		if l != nil {
			_ = site.Listener.Close()
			*l = at
			continue
		}
		plain := &http.Server{Handler: site.Config.Handler, ReadHeaderTimeout: time.Minute}
		go func() { _ = plain.Serve(at) }()
		t.Cleanup(func() { _ = plain.Close() })
	}
	site.StartTLS()
	site.Show(authority.Issue(t, []string{"example.com"}, nil))
	site.Config.ErrorLog.SetOutput(io.Discard)
	return site
}

// requestsBy counts an agent's requests for the page that came through the gateway. Over https they
// use HTTP/1.1 or HTTP/2; the host has a port in neither.
func requestsBy(s *rig.SecureSite, agent, scheme string) (n int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.Seen {
		if r.Target == "/" && r.Header.Get(throughGateway) == "yes" && r.Header.Get("User-Agent") == agent && (r.Secure == (scheme == "https")) {
			n++
		}
	}
	return n
}
