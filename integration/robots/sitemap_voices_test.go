//go:build slow

package robots

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// voice is another library that reads the sitemaps in robots.txt files.
type voice struct {
	name    string
	command func(t *testing.T) *exec.Cmd // takes files and prints a JSON array for each
	// differs explains each file of the corpus for which the library finds other sitemaps.
	differs map[string]disagreement
}

// disagreement is a reason why a library finds other sitemaps. It reports whether it explains those
// found.
type disagreement func(ours, theirs []string) bool

// isHTTP reports whether a value is an absolute URL of http or https (RFC 3986 section 4.3).
func isHTTP(value string) bool {
	scheme, rest, _ := strings.Cut(strings.ToLower(value), "://")
	return (scheme == "http" || scheme == "https") && rest != ""
}

// withoutValues reports whether theirs are ours and values that are no URL of http or https.
func withoutValues(ours, theirs []string) bool {
	kept := slices.DeleteFunc(slices.Clone(theirs), func(v string) bool { return !isHTTP(v) })
	return len(kept) < len(theirs) && slices.Equal(ours, kept)
}

var (
	// noURL is a value that is no absolute URL, which sitemaps.org requires: relative, an unfilled
	// template, or with bytes before the scheme.
	noURL disagreement = withoutValues
	// noBreakSpace is a no-break space before the URL. robots-parser trims all Unicode white space,
	// like JavaScript. Google's parser and this project's trim ASCII white space.
	noBreakSpace disagreement = func(ours, theirs []string) bool { return len(ours) == 0 && len(theirs) == 1 }
	// refused is a file that temoto/robotstxt rejects entirely, because a rule or a Crawl-delay
	// comes before any User-agent.
	refused disagreement = func(ours, theirs []string) bool { return len(ours) > 0 && len(theirs) == 0 }
	// blankColon is "Sitemap : URL". temoto/robotstxt reads the colon as the value.
	blankColon disagreement = func(ours, theirs []string) bool { return len(ours) == 1 && slices.Equal(theirs, []string{":"}) }
	// noValue is "Sitemap:" without a value. temoto/robotstxt reads the end of the line as the
	// value.
	noValue disagreement = withoutValues
	// otherWord is the word Sitemap inside a user-agent line. temoto/robotstxt reads it as the
	// field.
	otherWord disagreement = withoutValues
	// noColon is "sitemap http://…": the first colon is the URL's. This project reads two words,
	// and the first is the field. robots-parser reads the unknown field "sitemap http", and
	// temoto/robotstxt reads the value "http".
	noColon disagreement = func(ours, theirs []string) bool {
		return len(ours) > 0 && !slices.ContainsFunc(theirs, func(v string) bool { return v != "http" })
	}
)

// alike are the files for which both libraries differ for the same reason.
var alike = same(noURL,
	"18f.gov", "ballotpedia.org", "ferroncity.org", "gothamist.com", "in.bookmyshow.com", "kooora.com", "mariescountymo.gov",
	"ndrin.org", "tfl.gov.uk", "www.acronymfinder.com", "www.game.co.za", "www.icims.com", "www.iinet.net.au",
	"www.statesman.com", "www.stlouisfed.org", "www.universetoday.com",
)

func same(d disagreement, sites ...string) map[string]disagreement {
	all := make(map[string]disagreement, len(sites))
	for _, s := range sites {
		all[s] = d
	}
	return all
}

func joined(all ...map[string]disagreement) map[string]disagreement {
	whole := make(map[string]disagreement)
	for _, m := range all {
		maps.Copy(whole, m)
	}
	return whole
}

var voices = []voice{
	{"robots-parser", func(t *testing.T) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(t.Context(), rig.Need(t, "node"), filepath.Join(rig.NodePrograms(t, testdocs.Path("integration", "clients", "node")), "sitemaps.mjs"))
	}, joined(alike, same(noBreakSpace, "www.cfainstitute.org"), same(noColon, "www.au.dk"))},
	{"temoto/robotstxt", func(t *testing.T) *exec.Cmd {
		t.Helper()
		program := filepath.Join(t.TempDir(), "sitemaps")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./sitemaps")
		build.Dir = testdocs.Path("integration", "clients", "colly")
		rig.RunBounded(t, build)
		return exec.CommandContext(t.Context(), program)
	}, joined(alike,
		same(noURL, "www.cfainstitute.org"),
		same(refused, "hamilton-ny.gov", "hindustantimes.com", "ohiopmp.gov", "vokimberly.org", "www.gov.cn", "www.olympic.org", "www.tvnz.co.nz"),
		same(blankColon, "addisontx.gov", "cabarruscounty.us", "cheyennecity.org", "cityofpsl.com", "co.genesee.ny.us", "dunedingov.com",
			"edcgov.us", "hartford.gov", "kauai.gov", "lccountymt.gov", "mesaaz.gov", "siouxfalls.org", "ssf.net", "tompkinscountyny.gov",
			"townofpendleton.org"),
		same(noValue, "coolmaterial.com", "santeecooper.com", "www.usherbrooke.ca"),
		same(otherWord, "www.24hourfitness.com"),
		same(noColon, "www.au.dk"),
	)},
}

// TestSitemapsByOtherVoices reads the sitemaps of real files with two libraries. The tables must
// explain each difference, and each explanation must occur.
func TestSitemapsByOtherVoices(t *testing.T) {
	t.Parallel()
	folder, whole := os.Getenv("CRAWLGATE_CORPUS"), true
	if folder == "" {
		folder, whole = testdocs.Path("robotstxt", "testdata", "wild"), false
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	for i, file := range files {
		if files[i], err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range voices {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			found := v.read(t, files)
			sitemaps, differences := 0, make(map[string]bool)
			for i, file := range files {
				ours := sitemapsIn(t, file)
				sitemaps += len(ours)
				if slices.Equal(ours, found[i]) {
					continue
				}
				site := strings.TrimSuffix(filepath.Base(file), ".txt")
				differences[site] = true
				if d, known := v.differs[site]; !known || !d(ours, found[i]) {
					t.Errorf("%s: got %q, but the library has %q", site, ours, found[i])
				}
			}
			for site := range v.differs {
				if whole && !differences[site] {
					t.Errorf("%s: the table explains a difference that does not exist", site)
				}
			}
			t.Logf("%d files, %d sitemaps, %d differences, all explained", len(files), sitemaps, len(differences))
		})
	}
}

// read reads files with the library.
func (v *voice) read(t *testing.T, files []string) [][]string {
	t.Helper()
	cmd := v.command(t)
	cmd.Args = append(cmd.Args, files...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", v.name, err)
	}
	all := make([][]string, len(files))
	lines := json.NewDecoder(bytes.NewReader(out))
	for i := range all {
		if err := lines.Decode(&all[i]); err != nil {
			t.Fatalf("the output of %s for %s: %v", v.name, files[i], err)
		}
	}
	return all
}

// sitemapsIn returns the sitemaps that this project finds in a file.
func sitemapsIn(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := robotstxt.Parse(text).Sitemaps()
	urls := make([]string, len(list))
	for i, s := range list {
		urls[i] = s.URL
	}
	return urls
}
