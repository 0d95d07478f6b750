//go:build unix

package redistest

import "syscall"

// Pause stops the process (SIGSTOP): the kernel still takes connections and
// bytes for it, and nobody answers.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
