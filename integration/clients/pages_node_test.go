//go:build slow

package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// installed runs the commands of a page up to `npm ci`, because a client's machine cannot reach the
// registry, and returns the rest. It returns a page without `npm ci` as it is.
func installed(t *testing.T, dir, script string) string {
	t.Helper()
	before, after, node := strings.Cut(script, "npm ci\n")
	if !node {
		return script
	}
	project, ok := strings.CutPrefix(strings.TrimSuffix(before, "\n"), "cd ")
	if !ok || strings.Contains(project, "\n") {
		t.Fatalf("the page types before npm ci:\n%s", before)
	}
	rig.InstallNode(t, filepath.Join(dir, project))
	return before + after
}

// crawleeWithoutSettings puts the crawls of integration/clients/crawlee into a copy of a project
// that has Crawlee.
func crawleeWithoutSettings(t *testing.T, dir string) {
	t.Helper()
	if err := os.CopyFS(dir, os.DirFS(testdocs.Path(filepath.Join("integration", "clients", "crawlee")))); err != nil {
		t.Fatal(err)
	}
	rig.InstallNode(t, dir)
}
