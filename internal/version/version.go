package version

import (
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/mod/module"
)

// modulePath is the path of Crawlgate, which is the main module of its own binary and a dependency
// of one that xcaddy built.
const modulePath = "github.com/crawlgate/crawlgate"

// unknown is the version of a build that has none.
const unknown = "devel"

// Read returns the version of the module in the running binary, such as v1.2.3, a pseudo-version,
// which names its commit, or "devel" if the build has none. It is safe for concurrent use.
var Read = sync.OnceValue(func() string {
	build, _ := debug.ReadBuildInfo()
	return of(build)
})

// of reads the build information that the Go toolchain leaves in a binary; it is nil if the binary
// has none. A module that is replaced by a folder has no version.
func of(build *debug.BuildInfo) string {
	if build == nil {
		return unknown
	}
	for _, m := range append(build.Deps, &build.Main) {
		if m.Path != modulePath {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return unknown
}

// Ref names the source of a version in the repository: by the tag, the commit of a pseudo-version,
// or the branch main for "devel".
func Ref(version string) string {
	tag, _, _ := strings.Cut(version, "+") // such as +dirty
	if tag == unknown {
		return "main"
	}
	if commit, err := module.PseudoVersionRev(tag); err == nil {
		return commit
	}
	return tag
}

// UserAgent names the program, and the project in case nobody has configured a contact. Many sites
// answer a request without a User-Agent with 403, which for robots.txt would mean that everything
// is allowed.
func UserAgent() string {
	return "crawlgate/" + strings.TrimPrefix(Read(), "v") + " (+https://" + modulePath + ")"
}
