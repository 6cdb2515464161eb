//go:build slow

package robots

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// A crawler follows every link of some sites through the gateway and returns the status of each URL
// that it requested.
type crawler func(t *testing.T, program string, g *rig.Gateway, sites []*testorigin.Site) map[string]int

// crawlByCurl follows links with one curl for each site, eight transfers at a time.
func crawlByCurl(t *testing.T, curl string, g *rig.Gateway, sites []*testorigin.Site) map[string]int {
	t.Helper()
	var mu sync.Mutex
	asked := make(map[string]int)
	var wg sync.WaitGroup
	for _, site := range sites {
		wg.Go(func() {
			seen := map[string]bool{site.URL("/"): true}
			for frontier := []string{site.URL("/")}; len(frontier) > 0; {
				var next []string
				for _, got := range curlAll(t, curl, g, frontier) {
					mu.Lock()
					asked[got.url] = got.status
					mu.Unlock()
					for _, link := range rig.LinksIn(got.body) {
						if url := site.URL(link); !seen[url] {
							seen[url] = true
							next = append(next, url)
						}
					}
				}
				frontier = next
			}
		})
	}
	wg.Wait()
	return asked
}

// curlAnswer is curl's report of one transfer.
type curlAnswer struct {
	url    string
	status int
	body   string
}

// curlAll fetches URLs through the gateway with curl.
func curlAll(t *testing.T, curl string, g *rig.Gateway, urls []string) []curlAnswer {
	t.Helper()
	dir := t.TempDir()
	var config strings.Builder
	for i, url := range urls {
		fmt.Fprintf(&config, "url = %q\noutput = %q\n", url, filepath.Join(dir, strconv.Itoa(i)))
	}
	cmd := exec.CommandContext(t.Context(), curl, "--disable", "--config", "-", "--silent", "--show-error", "--noproxy", "",
		"--proxy", "http://"+g.Addr, "--user-agent", crawlAgent+"/1.0", "--globoff", "--path-as-is", "--max-time", "90",
		"--parallel", "--parallel-max", "8", "--write-out", "%{http_code} %{filename_effective} %{url}\n")
	cmd.Stdin = strings.NewReader(config.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("curl: %v: %s", err, stderr.String())
		return nil
	}
	answers := make([]curlAnswer, 0, len(urls))
	for line := range strings.Lines(string(out)) {
		var a curlAnswer
		var file string
		if _, err := fmt.Sscan(line, &a.status, &file, &a.url); err != nil {
			t.Errorf("curl printed %q: %v", line, err)
			return nil
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("the answer for %s: %v", a.url, err)
			return nil
		}
		a.body = string(body)
		answers = append(answers, a)
	}
	return answers
}

// crawlByScrapy runs a spider.
func crawlByScrapy(t *testing.T, scrapy string, g *rig.Gateway, sites []*testorigin.Site) map[string]int {
	t.Helper()
	roots := make([]string, len(sites))
	for i, site := range sites {
		roots[i] = site.URL("/")
	}
	out := filepath.Join(t.TempDir(), "answers.jsonl")
	cmd := exec.CommandContext(t.Context(), scrapy, "runspider", filepath.Join("testdata", "spider.py"),
		"--output", out+":jsonlines", "-a", "roots="+strings.Join(roots, ","))
	cmd.Env = append(os.Environ(), "http_proxy=http://"+g.Addr, "no_proxy=", "NO_PROXY=", "PYTHONDONTWRITEBYTECODE=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("scrapy: %v: %s", err, text)
	}
	file, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(map[string]int)
	for line := range strings.Lines(string(file)) {
		var a struct {
			URL    string `json:"url"`
			Status int    `json:"status"`
			Error  string `json:"error"`
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("scrapy printed %q: %v", line, err)
		}
		if a.Error != "" {
			t.Errorf("scrapy: %s: %s", a.URL, a.Error)
		}
		asked[a.URL] = a.Status
	}
	return asked
}
