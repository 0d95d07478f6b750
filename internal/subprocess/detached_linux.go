package subprocess

import "syscall"

// detached keeps Ctrl-C, which a terminal sends to the whole process group, from the process: its starter stops it, in
// order. If the starter is killed, the kernel asks the process to stop.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
