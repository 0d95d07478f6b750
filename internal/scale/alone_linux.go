package main

import "syscall"

// alone keeps Ctrl-C, which a terminal sends to the whole process group, from the sidecars, which are
// stopped in order; should this program be killed, the kernel asks them to stop.
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
