package version

import (
	"runtime/debug"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	own := func(version string) debug.Module { return debug.Module{Path: modulePath, Version: version} }
	caddy := debug.Module{Path: "caddy"}
	settings := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.modified", Value: "true"}}
	released, replaced := own("v1.2.3"), own("v1.2.3")
	replaced.Replace = &debug.Module{Path: "../crawlgate"}
	forked := own("v1.2.3")
	forked.Replace = &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}
	for _, tt := range []struct {
		name  string
		build *debug.BuildInfo
		want  Info
	}{
		{"no build information", nil, Info{Version: "devel"}},
		{"a release", &debug.BuildInfo{Main: own("v1.2.3")}, Info{Version: "v1.2.3"}},
		{"built without version control", &debug.BuildInfo{Main: own("(devel)")}, Info{Version: "devel"}},
		{
			"a working tree", &debug.BuildInfo{Main: own("v0.1.1-0.20260101000000-abc123+dirty"), Settings: settings},
			Info{"v0.1.1-0.20260101000000-abc123+dirty", "abc123", true},
		},
		{"a test", &debug.BuildInfo{Main: own("")}, Info{Version: "devel"}},
		{
			"xcaddy: the revision is another module's", &debug.BuildInfo{Main: caddy, Deps: []*debug.Module{{Path: "example.com/x", Version: "v9.0.0"}, &released}, Settings: settings},
			Info{Version: "v1.2.3"},
		},
		{"xcaddy with a folder", &debug.BuildInfo{Main: caddy, Deps: []*debug.Module{&replaced}}, Info{Version: "devel"}},
		{"xcaddy with a fork", &debug.BuildInfo{Main: caddy, Deps: []*debug.Module{&forked}}, Info{Version: "v1.2.4"}},
		{"another program", &debug.BuildInfo{Main: caddy}, Info{Version: "devel"}},
	} {
		if got := of(tt.build); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if Read().Version == "" {
		t.Error("the running binary has an empty version")
	}
}

func TestRef(t *testing.T) {
	t.Parallel()
	const pseudo = "v0.1.1-0.20260101000000-0123456789ab"
	for _, tt := range []struct {
		info      Info
		ref, text string
	}{
		{Info{Version: "devel"}, "main", "devel"},
		{Info{"devel", "abc123", false}, "abc123", "devel (abc123)"},
		{Info{"v1.2.3", "abc123", false}, "v1.2.3", "v1.2.3 (abc123)"},
		{Info{Version: "v1.2.3-rc.1"}, "v1.2.3-rc.1", "v1.2.3-rc.1"},
		{Info{"v1.2.3+dirty", "abc123", true}, "v1.2.3", "v1.2.3+dirty (abc123, modified)"},
		{Info{pseudo + "+dirty", "abc123", true}, "abc123", pseudo + "+dirty (abc123, modified)"},
		{Info{Version: pseudo}, "0123456789ab", pseudo},
		{Info{Version: "v0.0.0-20260101000000-0123456789ab"}, "0123456789ab", "v0.0.0-20260101000000-0123456789ab"},
		{Info{Version: "v1.2.4-rc.1.0.20260101000000-0123456789ab"}, "0123456789ab", "v1.2.4-rc.1.0.20260101000000-0123456789ab"},
	} {
		if ref, text := tt.info.Ref(), tt.info.String(); ref != tt.ref || text != tt.text {
			t.Errorf("%+v: %q, %q, want %q, %q", tt.info, ref, text, tt.ref, tt.text)
		}
	}
}
