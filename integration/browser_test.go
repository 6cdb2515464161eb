package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// browserSetup is what the checks in browser/ have to know.
type browserSetup struct {
	Chromium string `json:"chromium"`
	Console  string `json:"console"` // URLs without a slash at the end
	Proxy    string `json:"proxy"`
	Site     string `json:"site"` // with rules of an ordinary kind
	Evil     string `json:"evil"` // with a robots.txt that attacks who shows it
	Huge     string `json:"huge"` // with one of 10 MB
	User     string `json:"user"`
	Password string `json:"password"`
	Pictures string `json:"pictures,omitempty"` // the folder for them
	Seconds  int    `json:"seconds"`            // of the flood
}

// browserSite has a rule in line 9.
const browserSite = `# Rules of the shop

User-agent: *
Disallow: /search?
Crawl-delay: 1

# our own pages
User-agent: AcmeBot
Disallow: /private/
Allow: /private/press/
Disallow: /*?sort=
Content-Usage: train-ai=n

Sitemap: https://shop.example/sitemap.xml
`

// evilSite attacks the page that shows it, with tags and with marks that change the direction of text.
const evilSite = "User-agent: *\n# \u202e<img src=x onerror=pwned=1> \x00\x1b[2J\nDisallow: /x/ # <script>pwned=1</script> \"'`\u202e\n" +
	"# <b class=evil>\n# </code></li></ol><script>pwned=1</script>\nSitemap: http://example.com/<script>pwned=1</script>\n"

// newDesk starts a gateway with the operator's page, and sites with something to show.
func newDesk(t *testing.T) (*gateway, browserSetup) {
	t.Helper()
	s := browserSetup{Chromium: need(t, "chromium"), User: "ada", Password: "a b:c", Seconds: 60}
	need(t, "node")
	hash, err := bcrypt.GenerateFromPassword([]byte(s.Password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	server := testorigin.Start(t, testorigin.Config{})
	for i, text := range []string{browserSite, evilSite, "User-agent: *\nDisallow: /huge/\n" + strings.Repeat("# "+strings.Repeat("<b>", 26)+"\n", 10<<20/81)} {
		site := server.Site(t, testorigin.SiteConfig{Paths: []string{"/open"}})
		site.SetRobots(testorigin.OK(text))
		*[]*string{&s.Site, &s.Evil, &s.Huge}[i] = strings.TrimSuffix(site.URL("/"), "/")
	}
	address := freePort(t)
	g := startGateway(t, gatewayConfig{
		Engine: "pace {\nrate off\n}",
		Sites: fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nbasic_auth {\n%s %s\n}\nrobots_console {\norders on\n}\n}\n",
			address[strings.LastIndexByte(address, ':')+1:], s.User, hash),
	})
	s.Console, s.Proxy = "http://"+address, "http://"+g.addr
	return g, s
}

// browserResult is what came of a check.
type browserResult struct {
	Check   string         `json:"check"`
	Fault   string         `json:"fault"`
	Figures map[string]any `json:"figures"`
}

// browse runs a suite of checks, each as a test of its own. sample is called for each of the samples that a check takes.
func browse(t *testing.T, s browserSetup, suite string, sample func()) (checks int) {
	t.Helper()
	setup, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "run.mjs", suite)
	cmd.Dir = nodePrograms(t, "browser")
	cmd.Env = append(os.Environ(), "BROWSER_SETUP="+string(setup), "HOME="+t.TempDir())
	cmd.Stderr = new(tail)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(8*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r browserResult
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if r.Check == "sample" {
			t.Logf("%v", r.Figures)
			sample()
			continue
		}
		checks++
		t.Run(r.Check, func(t *testing.T) {
			if t.Logf("%v", r.Figures); r.Fault != "" {
				t.Error(r.Fault)
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, cmd.Stderr)
	}
	return checks
}

// TestPagesInChromium holds what the pages of the gateway are in a real browser: the operator's page, the gateway's own,
// and refusals. With CRAWLGATE_SCREENSHOTS, a folder, it leaves pictures there.
func TestPagesInChromium(t *testing.T) {
	loadsMachine(t)
	_, s := newDesk(t)
	folder := os.Getenv("CRAWLGATE_SCREENSHOTS")
	if folder != "" {
		s.Pictures = t.TempDir()
	}
	if n := browse(t, s, "pages", nil); n < 9 {
		t.Errorf("%d checks", n)
	}
	if folder == "" {
		return
	}
	files, err := os.ReadDir(s.Pictures)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := writePalette(filepath.Join(s.Pictures, f.Name()), filepath.Join(folder, f.Name())); err != nil {
			t.Error(err)
		}
	}
}

// TestConsoleUnderRefusals holds that a page which is open does not grow while a hundred requests a second are refused
// for a minute, and that the gateway does not.
func TestConsoleUnderRefusals(t *testing.T) {
	loadsMachine(t)
	g, s := newDesk(t)
	if testing.Short() {
		s.Seconds = 20
	}
	var rss []int64
	if n := browse(t, s, "flood", func() { rss = append(rss, g.usage().peakRSS) }); n != 1 || len(rss) < 2 {
		t.Fatalf("%d checks, %d samples", n, len(rss))
	}
	t.Logf("peak memory of the gateway: %d MB after 10 s, %d MB at the end", rss[0]>>20, rss[len(rss)-1]>>20)
	if grown := rss[len(rss)-1] - rss[0]; grown > 48<<20 {
		t.Errorf("the gateway has grown by %d MB", grown>>20)
	}
}

// writePalette writes a picture with the 256 colours that it has most of: a page has few.
func writePalette(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	bounds, count := picture.Bounds(), map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	var colours []color.RGBA
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int { return count[b] - count[a] })
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	out, index := image.NewPaletted(bounds, palette), map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, known := index[c]
			if !known {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o600)
}
