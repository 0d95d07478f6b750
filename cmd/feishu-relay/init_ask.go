package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// asker asks a person at a terminal.
type asker struct {
	in  *os.File
	out io.Writer
}

// newAsker returns nil if in and out are not both a terminal.
func newAsker(in *os.File, out io.Writer) *asker {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return &asker{in, out}
}

// line asks for a line; def is shown and returned for an empty one. A secret is not shown while it is typed. After an
// interruption the terminal is as it was before. The error is io.EOF where the
// answers end: at Ctrl-D, and where the terminal is raw also at Ctrl-C.
func (a *asker) line(ctx context.Context, prompt, def string, secret bool) (string, error) {
	if def != "" {
		prompt += " [" + def + "]"
	}
	fd := int(a.in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(fd, before) }()
	read := func() (string, error) {
		fmt.Fprint(a.out, prompt+": ")
		return readLine(a.in)
	}
	if secret {
		if _, err := term.MakeRaw(fd); err != nil { // before the prompt, so that nothing typed is shown
			return "", err
		}
		screen := term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{a.in, a.out}, "")
		read = func() (string, error) { return screen.ReadPassword(prompt + ": ") }
	}
	text, err := interruptible(ctx, read)
	if ctx.Err() != nil {
		fmt.Fprint(a.out, "\r\n")
		return "", ctx.Err()
	}
	return cmp.Or(strings.TrimSpace(text), def), err
}

// interruptible reads from a person until ctx is done; a read that goes on then ends with the process.
func interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := read()
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// maxAnswer is the most bytes of an answer; the rest of the line is dropped.
const maxAnswer = 4096

// readLine reads byte by byte, so that what follows is left for the next question.
func readLine(in io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); ; {
		n, err := in.Read(one)
		switch {
		case n > 0 && one[0] == '\n':
			return string(line), nil
		case n > 0 && len(line) < maxAnswer:
			line = append(line, one[0])
		case n == 0 && err != nil:
			return "", err
		}
	}
}
