package main

import "syscall"

// ofSupervisor makes a process die with the supervisor, even with one that is killed, and
// keeps a terminal's Ctrl-C from it: the supervisor stops it.
func ofSupervisor() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
