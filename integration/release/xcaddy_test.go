//go:build release

package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const path = "github.com/crawlgate/crawlgate"

// TestXcaddy does the same as `xcaddy build --with github.com/crawlgate/crawlgate@VERSION`: it
// builds a module with Caddy's main and an import of this module from a module proxy. The proxy is
// a folder with the commit of this checkout.
func TestXcaddy(t *testing.T) {
	t.Parallel()
	need(t, false, "go", "git")
	info := build(t, artefact(t, "crawlgate_*_linux_amd64"))
	version, caddy := strings.TrimSuffix(info.Main.Version, "+dirty"), ""
	for _, m := range info.Deps {
		if m.Path == "github.com/caddyserver/caddy/v2" {
			caddy = m.Version
		}
	}
	proxy, dir := publish(t, version), t.TempDir()
	goMod := "module caddy\n\ngo 1.26.8\n\nrequire (\n\tgithub.com/caddyserver/caddy/v2 " + caddy + "\n\t" + path + " " + version + "\n)\n"
	const main = `package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/crawlgate/crawlgate"
)

func main() { caddycmd.Main() }
`
	for name, text := range map[string]string{"go.mod": goMod, "main.go": main} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Use a separate module cache, filled from the machine's, so that no other build finds this
	// checkout's commit. Use the flags of the release, so that packages are compiled once.
	cache := strings.TrimSpace(run(t, "go", "env", "GOMODCACHE"))
	upstream := strings.TrimSpace(run(t, "go", "env", "GOPROXY"))
	run(
		t, "env", "GOMODCACHE="+t.TempDir(), "GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+upstream,
		"GONOSUMDB=*", "GOFLAGS=-modcacherw -mod=mod", "CGO_ENABLED=0", "GOWORK=off",
		"go", "build", "-C", dir, "-trimpath", "-tags", "nobadger,nomysql,nopgx", "-o", "caddy", ".",
	)
	if out := run(t, dir+"/caddy", "version"); !strings.HasPrefix(out, "Crawlgate "+version+", Caddy "+caddy) {
		t.Errorf("version %q, want %s", out, version)
	}
	out := run(t, dir+"/caddy", "list-modules", "--versions")
	if !strings.Contains(out, "http.handlers.robots "+version+"\n") {
		t.Errorf("the modules lack the handler of %s: %s", version, out)
	}
}

// publish makes a module proxy with one version of this module, from this checkout's commit.
func publish(t *testing.T, version string) (dir string) {
	t.Helper()
	root := strings.TrimSpace(run(t, "git", "rev-parse", "--show-toplevel"))
	dir = t.TempDir()
	versions := filepath.Join(dir, path, "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := zip.CreateFromVCS(file, module.Version{Path: path, Version: version}, root, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		".mod": run(t, "git", "-C", root, "show", "HEAD:go.mod"), ".info": `{"Version":"` + version + `"}`,
	} {
		if err := os.WriteFile(filepath.Join(versions, version+name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
