package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	littleSpace = 200 << 20 // bytes free, below which it is worth a word
	noSpace     = 20 << 20  // below which messages are about to be lost

	maxFiles = 5000 // files whose rights are looked at in each folder; the rest is left out
)

// folders are those that the sidecar writes in, by variable.
func folders(c *config) (dirs []string) {
	dirs = []string{c.RelayDir, c.TranscriptDir}
	if c.Mailbox.On && c.Mailbox.Backend == "file" {
		dirs = append(dirs, c.Mailbox.Dir)
	}
	return dirs
}

// checkDisks tells how much space is left, once for each disk.
func checkDisks(_ context.Context, c *subject) (out []finding) {
	seen := map[string]bool{}
	for _, dir := range folders(c.config) {
		at, err := existing(dir)
		if err != nil {
			continue // told with the folder
		}
		free, disk, ok := diskSpace(at)
		if !ok || seen[disk] {
			continue
		}
		seen[disk] = true
		out = append(out, spaceFinding(dir, free))
	}
	return out
}

func spaceFinding(dir string, free uint64) finding {
	const name, mend = "disk space", "make room there, or set DATA_DIR to a folder on another disk: "
	switch {
	case free < noSpace:
		return failure(name, mend+"df -h "+dir, "%s are left for %s", size(free), dir)
	case free < littleSpace:
		return warning(name, mend+"df -h "+dir, "%s are left for %s", size(free), dir)
	}
	return well(name, "%s are left for %s", size(free), dir)
}

// checkOwners looks for files that another user has made and this one cannot
// write: sidecars of several users, or one that ran as root once.
func checkOwners(ctx context.Context, c *subject) []finding {
	return foreignFiles(ctx, folders(c.config), mayWrite)
}

func foreignFiles(ctx context.Context, dirs []string, mayWrite func(fs.FileInfo) bool) (out []finding) {
	const name = "files of others"
	for _, dir := range dirs {
		looked, closed := 0, []string{}
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // a folder that cannot be read is told as its own
			if err == nil && strings.HasPrefix(d.Name(), scratch) {
				return nil // another check's
			}
			if looked++; looked > maxFiles || ctx.Err() != nil {
				return fs.SkipAll
			}
			if info, e := os.Lstat(path); e == nil && info.Mode()&fs.ModeSymlink == 0 && !mayWrite(info) {
				rel, _ := filepath.Rel(dir, path) // below dir, always
				closed = append(closed, rel)
			}
			return nil
		})
		if len(closed) > 0 {
			out = append(out, warning(name, fmt.Sprintf("chown -R %d:%d %s, or run all sidecars that share it as one user or in one group", os.Getuid(), os.Getgid(), dir),
				"this user cannot write in %s: %s", dir, some(closed)))
		}
	}
	return out
}

// scratch begins the names of the files that a check makes and removes.
const scratch = ".feishu-relay-check-"
