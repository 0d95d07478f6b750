//go:build !linux

package main

import "syscall"

// ofSupervisor adds nothing: only Linux ends a process with the one that started it.
func ofSupervisor() *syscall.SysProcAttr { return nil }
