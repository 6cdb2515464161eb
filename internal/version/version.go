// Package version tells which build of Crawlgate runs.
package version

import (
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
)

// modulePath is the path of Crawlgate, which is the main module of its own binary and a dependency
// of one that xcaddy built.
const modulePath = "github.com/crawlgate/crawlgate"

// unknown is the version of a build that carries none.
const unknown = "devel"

// Info tells one build from another.
type Info struct {
	// Version is the version of the module, such as v1.2.3 or a pseudo-version; "devel" where the
	// build has none.
	Version string
	// Commit is the revision that was built, empty where the build does not tell. A build by xcaddy
	// never does.
	Commit string
	// Modified says that the working tree had changes beside the commit.
	Modified bool
}

// Read returns the Info of the running binary. It is safe for concurrent use.
var Read = sync.OnceValue(func() Info {
	build, _ := debug.ReadBuildInfo()
	return of(build)
})

// of reads the build information that the Go toolchain leaves in a binary; nil is a binary without
// any.
func of(build *debug.BuildInfo) Info {
	info := Info{Version: unknown}
	if build == nil {
		return info
	}
	if build.Main.Path != modulePath {
		for _, m := range build.Deps {
			if m.Path == modulePath {
				info.Version = versionOf(m)
			}
		}
		return info
	}
	info.Version = versionOf(&build.Main)
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	return info
}

// versionOf is the version of the code that was compiled. A replacement by a folder has none.
func versionOf(m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" || m.Version == "(devel)" {
		return unknown
	}
	return m.Version
}

// pseudoVersion ends with the time and the first digits of a commit
// (go.dev/ref/mod#pseudo-versions).
var pseudoVersion = regexp.MustCompile(`[.-][0-9]{14}-([0-9a-f]{12})$`)

// Ref names the source of the build in its repository: by the tag, else the commit, else the branch
// main.
func (i Info) Ref() string {
	tag, _, _ := strings.Cut(i.Version, "+") // such as +dirty
	pseudo := pseudoVersion.FindStringSubmatch(tag)
	switch {
	case tag != unknown && pseudo == nil:
		return tag
	case i.Commit != "":
		return i.Commit
	case pseudo != nil:
		return pseudo[1]
	default:
		return "main"
	}
}

// String is the version with the commit, such as "v1.2.3 (0123456789ab)".
func (i Info) String() string {
	if i.Commit == "" {
		return i.Version
	}
	s := i.Version + " (" + i.Commit
	if i.Modified {
		s += ", modified"
	}
	return s + ")"
}

// UserAgent names the program, and the project where nobody has configured a contact. Many sites
// answer a request without a User-Agent with 403, which for robots.txt would mean that all is
// allowed.
func UserAgent() string {
	return "crawlgate/" + strings.TrimPrefix(Read().Version, "v") + " (+https://" + modulePath + ")"
}
