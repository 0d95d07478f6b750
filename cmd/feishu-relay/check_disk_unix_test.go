//go:build linux || darwin || freebsd

package main

import (
	"io/fs"
	"testing"
)

func TestWritable(t *testing.T) {
	for _, tt := range []struct {
		name         string
		mode         fs.FileMode
		owner, group uint32
		user         int
		groups       []int
		want         bool
	}{
		{"one's own", 0o600, 1, 1, 1, nil, true},
		{"one's own, read-only", 0o466, 1, 1, 1, nil, false},
		{"of the group", 0o660, 2, 3, 1, []int{3}, true},
		{"of the group, closed to it", 0o602, 2, 3, 1, []int{3}, false},
		{"of another user", 0o660, 2, 3, 1, []int{4}, false},
		{"of another user, open to all", 0o666, 2, 3, 1, nil, true},
		{"root", 0o000, 2, 3, 0, nil, true},
	} {
		if got := writable(tt.mode, tt.owner, tt.group, tt.user, tt.groups); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}
