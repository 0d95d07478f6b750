package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// roomFor returns an error that says so where the disk of dir has less than need
// bytes free.
func roomFor(dir string, need uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at the disk of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < need {
		return fmt.Errorf("%d MiB free, %d needed", free>>20, need>>20)
	}
	return nil
}
