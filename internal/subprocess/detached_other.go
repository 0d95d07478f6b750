//go:build !linux

package subprocess

import "syscall"

// detached leaves the process in its starter's process group: there Ctrl-C and a closed terminal reach it too, and
// nothing else would stop it.
func detached() *syscall.SysProcAttr { return nil }
