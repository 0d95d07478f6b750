package demo

import "syscall"

// detached keeps Ctrl-C, which a terminal sends to the whole process group,
// from the sidecars: the demo stops them, in order. Should the demo be killed,
// they are asked to stop by the kernel.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
