package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// The linker sets these in releases (Makefile, Dockerfile); what it leaves empty
// is taken from the stamp that the go command puts into a build.
var version, commit, date string

// build is what a binary knows of its own making.
type build struct {
	Version  string `json:"version"`  // a tag, or how far behind which; "devel" without any stamp
	Commit   string `json:"commit"`   // "": unknown
	Date     string `json:"date"`     // of the commit, RFC 3339; "": unknown
	Dirty    bool   `json:"dirty"`    // the tree held changes that were not committed
	Go       string `json:"go"`       // of the compiler
	Platform string `json:"platform"` // operating system and architecture
}

// thisBuild is the running binary's.
func thisBuild() build {
	info, _ := debug.ReadBuildInfo() // nil without one
	return stamped(build{Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}, info)
}

// stamped is b with what it lacks filled in from info, which may be nil.
func stamped(b build, info *debug.BuildInfo) build {
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if info.Main.Version != "(devel)" {
		b.Version = cmp.Or(b.Version, info.Main.Version)
	}
	b.Version = cmp.Or(b.Version, "devel")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, s.Value)
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	text := "feishu-relay " + b.Version
	if b.Commit != "" {
		text += fmt.Sprintf(" (commit %.12s of %s)", b.Commit, cmp.Or(b.Date, "an unknown date"))
	}
	return text + " " + b.Go + " " + b.Platform
}

func versionText() string { return thisBuild().Version }

type versionCommand struct {
	JSON bool `long:"json"`
}

func (c *versionCommand) run(p *cli, _ []string) error {
	if c.JSON {
		return writeLine(p.stdout, thisBuild())
	}
	_, err := fmt.Fprintln(p.stdout, thisBuild())
	return err
}
