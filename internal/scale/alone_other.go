//go:build !linux

package main

import "syscall"

func alone() *syscall.SysProcAttr { return nil }
