package version

import (
	"runtime/debug"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	own := func(version string) debug.Module { return debug.Module{Path: modulePath, Version: version} }
	caddy := debug.Module{Path: "caddy"}
	released, replaced := own("v1.2.3"), own("v1.2.3")
	replaced.Replace = &debug.Module{Path: "../crawlgate"}
	forked := own("v1.2.3")
	forked.Replace = &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}
	for _, tt := range []struct {
		name  string
		build *debug.BuildInfo
		want  string
	}{
		{"no build information", nil, "devel"},
		{"a release", &debug.BuildInfo{Main: own("v1.2.3")}, "v1.2.3"},
		{"built without version control", &debug.BuildInfo{Main: own("(devel)")}, "devel"},
		{"a working tree", &debug.BuildInfo{Main: own("v0.1.1-0.20260101000000-abc123+dirty")}, "v0.1.1-0.20260101000000-abc123+dirty"},
		{"a test", &debug.BuildInfo{Main: own("")}, "devel"},
		{"xcaddy", &debug.BuildInfo{Main: caddy, Deps: []*debug.Module{{Path: "example.com/x", Version: "v9.0.0"}, &released}}, "v1.2.3"},
		{"xcaddy with a folder", &debug.BuildInfo{Main: caddy, Deps: []*debug.Module{&replaced}}, "devel"},
		{"xcaddy with a fork", &debug.BuildInfo{Main: caddy, Deps: []*debug.Module{&forked}}, "v1.2.4"},
		{"another program", &debug.BuildInfo{Main: caddy}, "devel"},
	} {
		if got := of(tt.build); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if Read() == "" {
		t.Error("the running binary has an empty version")
	}
}

func TestRef(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"devel":                                "main",
		"v1.2.3":                               "v1.2.3",
		"v1.2.3-rc.1":                          "v1.2.3-rc.1",
		"v1.2.3+dirty":                         "v1.2.3",
		"v0.1.1-0.20260101000000-0123456789ab": "0123456789ab",
		"v0.1.1-0.20260101000000-0123456789ab+dirty": "0123456789ab",
		"v0.0.0-20260101000000-0123456789ab":         "0123456789ab",
		"v1.2.4-rc.1.0.20260101000000-0123456789ab":  "0123456789ab",
	} {
		if got := Ref(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
