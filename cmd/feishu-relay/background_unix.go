//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// readInBackground makes a read from the terminal fail rather than stop this
// program where it was started with & and the terminal is another's.
func readInBackground() { signal.Ignore(syscall.SIGTTIN) }
