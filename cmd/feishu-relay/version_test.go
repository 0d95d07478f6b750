package main

import (
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVersionOfABuild(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "6c277873a4d1f00d"}, {Key: "vcs.time", Value: "2026-11-22T05:04:00Z"},
		{Key: "vcs.modified", Value: "true"}}
	for name, tt := range map[string]struct {
		linker build
		info   *debug.BuildInfo
		want   string
	}{
		"a release says what the linker was told": {build{Version: "v1.2.3", Commit: "abc", Date: "2026-01-01T00:00:00Z"},
			&debug.BuildInfo{Main: debug.Module{Version: "v9.9.9"}, Settings: vcs}, "feishu-relay v1.2.3 (commit abc of 2026-01-01T00:00:00Z)  "},
		"a plain go build has the stamp of the go command": {build{},
			&debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122050400-6c277873a4d1+dirty"}, Settings: vcs},
			"feishu-relay v0.0.0-20261122050400-6c277873a4d1+dirty (commit 6c277873a4d1 of 2026-11-22T05:04:00Z)  "},
		"a module from a proxy has no commit": {build{}, &debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, "feishu-relay v1.0.0  "},
		"a build without version control":     {build{}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "feishu-relay devel  "},
		"a commit without a date":             {build{Commit: "abc"}, nil, "feishu-relay devel (commit abc of an unknown date)  "},
		"no stamp at all":                     {build{}, nil, "feishu-relay devel  "},
	} {
		if got := stamped(tt.linker, tt.info).String(); got != tt.want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, tt.want)
		}
	}
	if b := stamped(build{}, &debug.BuildInfo{Settings: vcs}); !b.Dirty {
		t.Error("a tree with changes is not called dirty")
	}
}

func TestVersionAsJSON(t *testing.T) {
	_, text, _ := program(t, "version")
	_, asJSON, _ := program(t, "version", "--json")
	var got build
	if err := json.Unmarshal([]byte(asJSON), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(thisBuild(), got); diff != "" {
		t.Error(diff)
	}
	if want := strings.TrimSpace(text); got.String() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
