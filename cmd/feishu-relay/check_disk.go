package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	littleSpace = 200 << 20 // free bytes, below which the probe warns
	noSpace     = 20 << 20  // below which messages are about to be lost

	maxFiles = 5000 // files whose rights are looked at in each folder; the rest is left out
)

// folders are those that the sidecar writes in.
func folders(s *subject) []string {
	dirs := []string{s.RelayDir, s.TranscriptDir}
	if mailFiles(s) {
		dirs = append(dirs, s.Mailbox.Dir)
	}
	return dirs
}

// checkDisks reports how much space is left, once for each disk.
func checkDisks(_ context.Context, s *subject) (out []finding) {
	seen := map[string]bool{}
	for _, dir := range folders(s) {
		at, err := existing(dir)
		if err != nil {
			continue // reported with the folder
		}
		if free, disk, ok := diskSpace(at); ok && !seen[disk] {
			seen[disk] = true
			out = append(out, spaceFinding(dir, free)...)
		}
	}
	return out
}

func spaceFinding(dir string, free uint64) []finding {
	mend := say("make room there, or set DATA_DIR to a folder on another disk: df -h %s",
		"清理空间，或把 DATA_DIR 设到另一块磁盘上：df -h %s", dir)
	switch {
	case free < noSpace:
		return failure(mend, "%s are left for %s", "剩余 %s，在 %s", size(free), dir)
	case free < littleSpace:
		return warning(mend, "%s are left for %s", "剩余 %s，在 %s", size(free), dir)
	}
	return well("%s are left for %s", "剩余 %s，在 %s", size(free), dir)
}

// checkOwners looks for files that another user has made and this one cannot write:
// sidecars of several users, or one that ran as root once.
func checkOwners(ctx context.Context, s *subject) []finding {
	return foreignFiles(ctx, folders(s), mayWrite)
}

func foreignFiles(ctx context.Context, dirs []string, mayWrite func(fs.FileInfo) bool) (out []finding) {
	for _, dir := range dirs {
		looked, closed := 0, []string{}
		// A folder that cannot be read is itself a file of others.
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(d.Name(), scratch) {
				return nil // another check's
			}
			if looked++; looked > maxFiles || ctx.Err() != nil {
				return fs.SkipAll
			}
			if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 && !mayWrite(info) {
				rel, _ := filepath.Rel(dir, path) // below dir, always
				closed = append(closed, rel)
			}
			return nil
		})
		if len(closed) > 0 {
			mend := say("chown -R %d:%d %s, or run all sidecars that share it as one user or in one group",
				"chown -R %d:%d %s，或让共用它的所有边车以同一个用户或同一个组运行", os.Getuid(), os.Getgid(), dir)
			out = append(out, warning(mend, "this user cannot write in %s: %s", "这个用户不能写 %s 里的：%s", dir, some(closed))...)
		}
	}
	return out
}
