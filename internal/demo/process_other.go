//go:build !linux

package demo

import "syscall"

// detached leaves the sidecars in the demo's process group: there Ctrl-C and a
// closed terminal reach them too, and nobody else would tell them.
func detached() *syscall.SysProcAttr { return nil }
