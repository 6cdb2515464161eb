package crawlgate

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Limits of what a reader opens to follow one request.
const (
	mostSteps     = 30 // files listed as steps
	mostFiles     = 49 // files with code that runs
	mostReentries = 5  // returns to a folder that was left
)

// aStep is the number of statements of a file that run at least if the file is a step of the way.
const aStep = 5

// byHeartbeat matches the files that heartbeats run every half a second on any way.
var byHeartbeat = regexp.MustCompile(`^(cluster/|engine/fleet\.go$)`)

// TestWaysAreMeasured runs the ways of docs/architecture.md with internal/testways, which counts
// what runs, and compares the files with the page. Each file that the page names must run. The page
// must name each file in which aStep statements or more run, except files run by heartbeats and,
// for other ways, the files of a request, with which they begin.
func TestWaysAreMeasured(t *testing.T) {
	t.Parallel()
	ways := waysOfPage(t)
	folder := walkWays(t)
	for title, page := range ways {
		ran := statementsOf(t, folder, title)
		if ran == nil {
			continue // a reload, which is not measured
		}
		for _, file := range page.named {
			if ran[file] == 0 {
				t.Errorf("%s: %s does not run", title, file)
			}
		}
		for file, statements := range ran {
			if statements >= aStep && !slices.Contains(page.named, file) && !byHeartbeat.MatchString(file) && (title == "A request" || !slices.Contains(ways["A request"].named, file)) {
				t.Errorf("%s: the page does not name %s, in which %d statements run", title, file, statements)
			}
		}
		t.Logf("%s: %d steps, %d named, %d files run, %d re-entries", title, len(page.steps), len(page.named), len(ran), reentries(page.steps))
		maps.DeleteFunc(ran, func(file string, _ int) bool { return byHeartbeat.MatchString(file) })
		if title == "A request" && (len(page.steps) > mostSteps || len(ran) > mostFiles || reentries(page.steps) > mostReentries) {
			t.Errorf("%s has more than %d steps, %d files or %d re-entries", title, mostSteps, mostFiles, mostReentries)
		}
	}
	walked, err := filepath.Glob(filepath.Join(folder, "*.0"))
	if err != nil || len(walked) != len(ways)-1 {
		t.Errorf("%d ways were measured, but the page has %d, including a reload: %v", len(walked), len(ways), err)
	}
}

// wayOfPage is a section of docs/architecture.md.
type wayOfPage struct {
	steps []string // files, in order
	named []string // steps, and files beside them
}

// waysOfPage reads the sections that have steps, by their titles.
func waysOfPage(t *testing.T) map[string]wayOfPage {
	t.Helper()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	step, named := regexp.MustCompile("(?m)^[0-9]+\\. `([a-z0-9/_]+\\.go)` "), regexp.MustCompile("`([a-z0-9/_]+\\.go)`")
	ways := make(map[string]wayOfPage)
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		if title == "Next" {
			continue
		}
		var way wayOfPage
		for _, m := range step.FindAllStringSubmatch(body, -1) {
			way.steps = append(way.steps, m[1])
		}
		for _, m := range named.FindAllStringSubmatch(body, -1) {
			way.named = append(way.named, m[1])
		}
		ways[title] = way
	}
	return ways
}

// reentries counts how often steps return to a top-level folder that was left.
func reentries(steps []string) (n int) {
	left := make(map[string]bool)
	last := ""
	for _, file := range steps {
		folder, _, ok := strings.Cut(file, "/")
		if !ok {
			folder = "."
		}
		if folder != last && left[folder] {
			n++
		}
		left[folder], last = true, folder
	}
	return n
}

// walkWays builds and runs internal/testways, and returns the folder with what ran.
func walkWays(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, folder, data := filepath.Join(dir, "testways"), filepath.Join(dir, "ways"), filepath.Join(dir, "data")
	for _, d := range []string{folder, data} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-cover", "-covermode=atomic", "-coverpkg="+module+"/...", "-o", program, "./internal/testways")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building internal/testways: %v: %s", err, out)
	}
	run := exec.CommandContext(t.Context(), program, folder)
	run.Env = append(os.Environ(), "XDG_DATA_HOME="+data, "XDG_CONFIG_HOME="+data, "GOCOVERDIR="+data)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("running internal/testways: %v: %s", err, out)
	}
	return folder
}

// statementsOf counts the statements that ran in each file in all walks of a way; it returns nil
// for a way without walks.
func statementsOf(t *testing.T, folder, way string) map[string]int {
	t.Helper()
	walks, err := filepath.Glob(filepath.Join(folder, way+".*"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(module) + `/(\S+\.go):(\S+) ([0-9]+) [1-9][0-9]*$`)
	times, size := make(map[[2]string]int), make(map[[2]string]int)
	for _, walk := range walks {
		profile := filepath.Join(t.TempDir(), "profile")
		if out, err := exec.CommandContext(t.Context(), "go", "tool", "covdata", "textfmt", "-i="+walk, "-o="+profile).CombinedOutput(); err != nil {
			t.Fatalf("go tool covdata: %v: %s", err, out)
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			block := [2]string{m[1], m[2]}
			times[block]++
			size[block], _ = strconv.Atoi(m[3])
		}
	}
	var ran map[string]int
	for block, n := range times {
		if n == len(walks) && !onlyForTests(block[0]) {
			if ran == nil {
				ran = make(map[string]int)
			}
			ran[block[0]] += size[block]
		}
	}
	return ran
}

// onlyForTests reports whether a file is in a package that must not be in our programs.
func onlyForTests(file string) bool {
	return slices.Contains(onlyInTests, filepath.Dir(file))
}
