// Package subprocess runs sidecars, and the demo's Redis, as processes of their own.
package subprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"feishu-relay/internal/wait"
)

const (
	pollEvery = 10 * time.Millisecond
	logTail   = 3000 // bytes of a log that [LogEnd] returns, at most
)

// Process is a process that was started.
type Process struct {
	Exited <-chan struct{} // closed when it has ended
	cmd    *exec.Cmd
}

// Start starts command (a program and its arguments) in the folder dir, with the environment env and no other. Its
// output is appended to the file log. Where the system allows it, Ctrl-C does not reach the process, and it ends with
// this one.
func Start(dir, log string, env []string, command ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own descriptor
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = env, dir, out, out, detached()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // ProcessState has the result
	}()
	return &Process{exited, cmd}, nil
}

// Ready polls until ready returns true. It fails if the process ends.
func (p *Process) Ready(ctx context.Context, ready func(context.Context) bool) error {
	return wait.Until(ctx, pollEvery, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Exited:
			return false, errors.New("it ended before it was ready")
		default:
			return ready(ctx), nil
		}
	})
}

// Pid is the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process at once, as a crash does, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when it has ended already
	<-p.Exited
}

// Stop asks the process to end, and kills it after a time. It returns an error unless the process exited with 0.
func (p *Process) Stop(within time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.Kill()
		return fmt.Errorf("it could not be asked to stop and was killed: %w", err)
	}
	if !wait.Closed(p.Exited, within) {
		p.Kill()
		return fmt.Errorf("it did not stop within %s and was killed", within)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("it ended with %s", p.cmd.ProcessState)
	}
	return nil
}

// LogEnd is the end of a log, from the beginning of a line where it is cut; "" if the log cannot be read.
func LogEnd(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	return lastLines(string(data), logTail)
}

// lastLines is the end of text, at most n bytes, from the beginning of a line.
func lastLines(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	if _, rest, ok := strings.Cut(text, "\n"); ok {
		return rest
	}
	return strings.ToValidUTF8(text, "")
}
