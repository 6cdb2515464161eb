package crawlgate

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// module is the prefix of our own import paths.
const module = "github.com/crawlgate/crawlgate"

// importRules restricts the direction of imports. A package may import the standard library,
// packages in its own folder, and the packages of its row. A row lists prefixes of import paths,
// our own without the module path. The longest row that matches a package applies. Tests may import
// any package.
var importRules = map[string][]string{
	"origin":                 {"golang.org/x/"},
	"robotstxt":              {"golang.org/x/"},
	"signals/htmlhead":       {"golang.org/x/net/html", "internal/coding"},
	"egress":                 {"golang.org/x/", "github.com/dunglas/httpsfv"},
	"webbotauth":             {"internal/repeated"},
	"egress/guard":           {},
	"egress/ftphttp":         {"egress/guard", "github.com/jlaffaye/ftp"},
	"egress/mint":            {"golang.org/x/"},
	"fetch":                  {"golang.org/x/", "origin", "internal/coding", "internal/escape", "internal/redact"},
	"robotscache":            {"golang.org/x/", "origin", "robotstxt", "fetch", "github.com/dgraph-io/ristretto/v2", "github.com/puzpuzpuz/xsync/v4"},
	"robotscache/boltstore":  {"golang.org/x/", "origin", "fetch", "robotscache", "go.etcd.io/bbolt"},
	"robotscache/redisstore": {"golang.org/x/", "origin", "fetch", "robotscache", "cluster/link", "github.com/redis/rueidis"},
	"robotscache/memstore":   {"origin", "fetch", "robotscache"},
	"robotscache/storetest":  {"origin", "fetch", "robotscache"},
	"robotscache/internal":   {"fetch", "robotscache", "github.com/klauspost/compress/"},
	"enforce":                {"budget", "pace", "signals/directives", "signals/htmlhead", "signals/preferences", "golang.org/x/", "origin", "robotstxt", "fetch", "robotscache", "webbotauth", "internal/escape", "internal/follow", "internal/pagestyle", "internal/redact"},
	"pace":                   {"golang.org/x/"},
	"pace/redisclock":        {"golang.org/x/", "pace", "cluster/link", "github.com/redis/rueidis"},
	"budget":                 {"github.com/dustin/go-humanize"},
	"budget/redispool":       {"budget", "cluster/link", "github.com/redis/rueidis"},
	"evidence":               {"golang.org/x/mod/sumdb/"},
	"evidence/sealer":        {"evidence", "golang.org/x/mod/sumdb/", "github.com/transparency-dev/formats/note", "internal/lines"},
	"evidence/verify":        {"evidence", "golang.org/x/mod/sumdb/"},
	"audit/report":           {"audit", "enforce", "origin", "internal/pagestyle", "internal/plot", "internal/plot", "github.com/dustin/go-humanize"},
	"signals/directives":     {},
	"signals/preferences":    {"robotstxt", "signals/directives", "internal/repeated", "github.com/dunglas/httpsfv"},
	"audit/simulate":         {"audit", "budget", "enforce", "fetch", "origin", "signals/preferences", "robotscache", "robotscache/boltstore", "robotstxt", "internal/escape"},
	"audit":                  {"evidence/verify", "evidence", "golang.org/x/", "internal/lines", "origin", "robotstxt", "fetch", "robotscache", "enforce"},
	"evidence/caddylog":      {"evidence", "evidence/sealer", "internal/block", "internal/lines", "github.com/caddyserver/caddy/v2", "go.uber.org/zap"},
	"cluster":                {"golang.org/x/", "enforce", "evidence", "cluster/link", "github.com/redis/rueidis"},
	"cluster/link":           {"github.com/redis/rueidis"},
	"engine": {
		"golang.org/x/", "github.com/caddyserver/", "github.com/prometheus/client_golang", "go.uber.org/zap",
		"origin", "robotstxt", "fetch", "robotscache", "robotscache/boltstore", "robotscache/redisstore", "robotscache/memstore",
		"enforce", "budget", "budget/redispool", "pace", "pace/redisclock", "cluster", "cluster/link", "egress", "egress/guard", "internal/escape", "internal/follow", "internal/redact", "internal/stall", "internal/version", "internal/sockets",
		"signals/preferences", "evidence/sealer", "evidence/caddylog", "webbotauth",
	},
	"proxy": {
		"golang.org/x/", "github.com/caddyserver/caddy/v2", "go.opentelemetry.io/otel", "go.uber.org/zap", "origin", "fetch",
		"robotscache", "enforce", "budget", "pace", "signals/htmlhead", "egress", "egress/guard", "egress/mint", "engine", "internal/docsite", "internal/pagestyle", "internal/redact", "internal/stall", "internal/version",
	},
	"proxy/admission": {
		"golang.org/x/", "github.com/caddyserver/caddy/v2", "go.uber.org/zap", "enforce", "egress", "engine",
		"internal/sockets",
	},
	"internal":                  {},
	"internal/block":            {"github.com/caddyserver/caddy/v2", "github.com/dustin/go-humanize"},
	"internal/coding":           {"github.com/andybalholm/brotli", "github.com/klauspost/compress/"},
	"docs":                      {},
	"internal/docsite":          {"docs", "internal/pagestyle", "internal/version", "github.com/yuin/goldmark"},
	"internal/lines":            {"github.com/klauspost/compress/"},
	"internal/linediff":         {"github.com/aymanbagabas/go-udiff/lcs"},
	"internal/plot":             {"github.com/dustin/go-humanize"},
	"internal/passwords":        {"enforce", "github.com/caddyserver/caddy/v2", "golang.org/x/"},
	"internal/redact":           {"golang.org/x/"},
	"internal/sockets":          {},
	"internal/version":          {"golang.org/x/mod/module"},
	"internal/testgateway":      {"internal/sockets", "github.com/caddyserver/"},
	"internal/testways":         {"", "cli", "internal/sockets", "internal/testgateway", "internal/testorigin", "pace/redisclock/redistest", "github.com/spf13/cobra"},
	"pace/redisclock/redistest": {"internal/testorigin"},
	"internal/testorigin":       {"golang.org/x/", "origin", "github.com/andybalholm/brotli", "github.com/klauspost/compress/"},
	"cmd/crawlgate":             {"", "internal/version", "github.com/caddyserver/caddy/v2", "github.com/spf13/cobra"},
	"integration":               {},
	"integration/rig":           {"enforce", "internal/lines", "internal/testdocs", "internal/testorigin", "golang.org/x/"},
	"bench":                     {"*"}, // measurements, which are not part of the program
	// Packages that connect the others.
	"adminapi": {
		"engine", "enforce", "budget", "pace", "evidence/sealer", "cluster", "fetch", "origin", "signals/preferences", "robotscache", "robotstxt", "webbotauth",
		"internal/escape", "internal/linediff", "internal/repeated", "internal/version", "github.com/aymanbagabas/go-udiff/lcs", "github.com/caddyserver/caddy/v2",
		"golang.org/x/sync/singleflight",
	},
	"console": {
		"adminapi", "engine", "enforce", "cluster", "origin", "internal/block", "internal/docsite", "internal/escape", "internal/linediff", "internal/pagestyle", "internal/passwords", "internal/plot", "internal/version",
		"github.com/caddyserver/caddy/v2", "go.uber.org/zap",
	},
	"botpage": {
		"engine", "enforce", "egress", "egress/guard", "fetch", "origin", "pace", "webbotauth", "internal/block", "internal/escape", "internal/pagestyle",
		"github.com/caddyserver/caddy/v2", "go.uber.org/zap", "golang.org/x/net/publicsuffix", "golang.org/x/time/rate",
	},
	"cli": {
		"adminapi", "engine", "cluster", "audit", "evidence/verify", "audit/report", "audit/simulate", "egress", "egress/guard", "enforce", "evidence/sealer", "fetch", "origin", "signals/preferences", "robotscache", "robotscache/boltstore", "robotstxt", "webbotauth",
		"internal/escape", "internal/linediff", "internal/lines", "internal/repeated", "internal/version", "github.com/caddyserver/caddy/v2", "github.com/spf13/", "golang.org/x/",
	},
	"": {"*"},
}

// onlyInTests are packages that must not be in our programs.
var onlyInTests = []string{"integration/rig", "internal/testcpu", "internal/testdocs", "internal/testgateway", "internal/testorigin", "internal/testways", "robotscache/storetest", "pace/redisclock/redistest", "internal/oracle"}

// TestImportsPointOneWay checks the output of `go list` for this tree against importRules.
func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")) {
		fields := strings.Fields(line)
		pkg := within(fields[0])
		row, ok := ruleOf(pkg)
		if !ok {
			t.Errorf("no row of importRules matches %s", fields[0])
			continue
		}
		for _, path := range fields[1:] {
			if !permitted(pkg, row, path) {
				t.Errorf("%s imports %s, which importRules do not permit", fields[0], path)
			}
		}
	}
}

// TestTestPackagesStayOutOfTheBinary checks that the program has no packages for tests.
func TestTestPackagesStayOutOfTheBinary(t *testing.T) {
	t.Parallel()
	for path := range strings.Lines(goList(t, "-deps", "./cmd/crawlgate")) {
		if path := strings.TrimSpace(path); slices.Contains(onlyInTests, within(path)) || path == "testing" {
			t.Errorf("the program contains %s", path)
		}
	}
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %q: %v", args, err)
	}
	return string(out)
}

// within returns one of our import paths without the module path.
func within(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

// ruleOf returns the row for a package: its own, or the nearest parent folder's.
func ruleOf(pkg string) (row string, ok bool) {
	for row = pkg; row != ""; {
		if _, ok := importRules[row]; ok {
			return row, true
		}
		i := strings.LastIndexByte(row, '/')
		row = row[:max(i, 0)]
	}
	return "", pkg == ""
}

// permitted reports whether a package with the given row may import a path.
func permitted(pkg, row, path string) bool {
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	ours := path == module || strings.HasPrefix(path, module+"/")
	name := path
	if ours {
		name = within(path)
	}
	if ours && row != "" && (name == row || strings.HasPrefix(name, row+"/") || strings.HasPrefix(name, topFolder(row)+"/internal/")) {
		return true
	}
	return slices.ContainsFunc(importRules[row], func(allowed string) bool {
		switch {
		case allowed == "*":
			return true
		case ours:
			return name == allowed
		case allowed == "":
			return false
		}
		return strings.HasPrefix(name, allowed)
	})
}

// topFolder returns the topmost folder of a row, whose internal packages all packages below it may
// import.
func topFolder(row string) string {
	top, _, _ := strings.Cut(row, "/")
	return top
}

// TestRootStaysSmall checks that the root package has only what Caddy configures: everything else
// belongs in other packages.
func TestRootStaysSmall(t *testing.T) {
	t.Parallel()
	files, lines := 0, 0
	for name := range strings.FieldsSeq(goList(t, "-f", "{{join .GoFiles \" \"}}", ".")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files++
		lines += strings.Count(string(text), "\n")
	}
	if files == 0 || files > 5 || lines > 1400 {
		t.Errorf("%d files of %d lines, want 5 of 1,400 at most", files, lines)
	}
}
