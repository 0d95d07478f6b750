//go:build linux || darwin || freebsd

package main

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// diskSpace is what this user may still write on dir's disk, and which disk that
// is.
func diskSpace(dir string) (free uint64, disk string, ok bool) {
	var st syscall.Statfs_t
	info, err := os.Stat(dir)
	if err != nil || syscall.Statfs(dir, &st) != nil {
		return 0, "", false
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, "", false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), fmt.Sprint(own.Dev), true
}

// mayWrite goes by the rights of the file: not by lists (ACL), which may give
// more.
func mayWrite(info fs.FileInfo) bool {
	own, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	groups, _ := os.Getgroups() // nil: those of others only
	return writable(info.Mode(), own.Uid, own.Gid, os.Geteuid(), append(groups, os.Getegid()))
}

func writable(mode fs.FileMode, owner, group uint32, user int, groups []int) bool {
	switch {
	case user == 0:
		return true
	case int(owner) == user:
		return mode&0o200 != 0
	case slices.Contains(groups, int(group)):
		return mode&0o020 != 0
	}
	return mode&0o002 != 0
}
