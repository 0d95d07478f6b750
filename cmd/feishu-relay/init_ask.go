package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// asker asks a person at a terminal.
type asker struct {
	in     *os.File
	screen *term.Terminal
}

// newAsker returns nil if in and out are not both a terminal.
func newAsker(in *os.File, out io.Writer) *asker {
	if !isTerminal(out) || !isTerminal(in) {
		return nil
	}
	screen := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, out}, "")
	if width, height, err := term.GetSize(int(in.Fd())); err == nil {
		_ = screen.SetSize(width, height) // else it counts as 80 columns wide
	}
	return &asker{in, screen}
}

// line asks for a line; def is shown and returned for an empty one. A secret is not shown while it is typed. After an
// interruption the terminal is as it was before. The error is io.EOF where the answers end: at Ctrl-D and at Ctrl-C.
func (a *asker) line(ctx context.Context, prompt, def string, secret bool) (string, error) {
	if def != "" {
		prompt += " [" + def + "]"
	}
	before, err := term.MakeRaw(int(a.in.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(int(a.in.Fd()), before) }()
	a.screen.SetPrompt(prompt + ": ")
	read := a.screen.ReadLine
	if secret {
		read = func() (string, error) { return a.screen.ReadPassword(prompt + ": ") }
	}
	text, err := interruptible(ctx, read)
	return cmp.Or(strings.TrimSpace(text), def), err
}

// interruptible reads from a person until ctx is done; a read that goes on then ends with the process.
func interruptible[T any](ctx context.Context, read func() (T, error)) (got T, err error) {
	done := make(chan struct{})
	var answer T
	var failed error
	go func() {
		defer close(done)
		answer, failed = read()
	}()
	select {
	case <-done:
		return answer, failed
	case <-ctx.Done():
		return got, ctx.Err()
	}
}
