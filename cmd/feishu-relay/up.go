package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/jessevdk/go-flags"

	"feishu-relay/internal/wait"
	"feishu-relay/sidecar"
)

const (
	// upStop is how long a sidecar may take to stop before it is killed.
	upStop = 20 * time.Second
	// upSteady is how long a sidecar has to run for its next restart to come soon again.
	upSteady = time.Minute
	// maxLogLine is the most bytes of a log line; a longer one becomes several.
	maxLogLine = 64 << 10
)

type upCommand struct {
	Check bool `long:"check"`
	Try   bool `long:"try"`
	Args  struct {
		File flags.Filename `positional-arg-name:"FILE" required:"yes"`
	} `positional-args:"yes"`
}

func (c *upCommand) run(p *cli, _ []string) error {
	ctx, stdout, stderr, path := p.ctx, p.stdout, p.stderr, string(c.Args.File)
	file, err := readBotsFile(ctx, path)
	if err != nil {
		return err
	}
	good := file.report(stderr)
	switch {
	case good == 0, (c.Check || c.Try) && good < len(file.bots):
		return errFailed
	case c.Try:
		return file.try(ctx, stdout, stderr)
	case c.Check:
		_, err := fmt.Fprintf(stdout, "%s has no mistakes: %s\n", path, counted(good, "bot", "bots"))
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log := &sharedLog{w: stderr, paint: newPaint(stderr)}
	log.line("up", "`feishu-relay up --try "+path+"` checks these sidecars and their bots")
	var all sync.WaitGroup
	for _, b := range file.bots {
		if b.mistaken {
			log.line("up", b.name+" is not started: it has mistakes")
			continue
		}
		log.line("up", fmt.Sprintf("%s: viewer and local API http://%s, gateway %s", b.name,
			sidecar.Reachable(b.get("LISTEN_ADDR")), cmp.Or(b.get("GATEWAY_ADDR"), "-")))
		s := supervised{name: b.name, program: self, log: log, stop: upStop,
			environ: append(b.environment(), b.forTerminal(stderr)...)}
		all.Go(func() { s.keep(ctx) })
	}
	all.Wait()
	log.line("up", "all sidecars have stopped")
	return nil
}

// forTerminal returns the variables by which the bot's sidecar, which writes to a pipe, logs as on a terminal.
// There are none if w is no terminal, or if LOG_FORMAT is set.
func (b *upBot) forTerminal(w io.Writer) (environ []string) {
	if b.get("LOG_FORMAT") != "auto" || !isTerminal(w) {
		return nil
	}
	environ = append(environ, "LOG_FORMAT=console")
	if newPaint(w).on {
		environ = append(environ, forceColour+"=1")
	}
	return environ
}

// try runs check for each bot, one after the other.
func (f *botsFile) try(ctx context.Context, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var failed error
	for _, b := range f.bots {
		if _, err := fmt.Fprintf(stdout, "%s:\n", neutral(b.name)); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, "check", "--quiet")
		cmd.Env, cmd.Stdout, cmd.Stderr = b.environment(), stdout, stderr
		if cmd.Run() != nil {
			failed = errFailed // its output says why
		}
	}
	return cmp.Or(ctx.Err(), failed)
}

// supervised is the sidecar of one bot.
type supervised struct {
	name, program string
	environ       []string
	log           *sharedLog
	stop          time.Duration // how long it may take to stop
}

// keep runs the sidecar, again and again, until ctx is done.
func (s *supervised) keep(ctx context.Context) {
	runtime.LockOSThread() // Linux tells the process when the thread that started it ends
	pauses := wait.NewBackoff(time.Second, time.Minute)
	for {
		began := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			if err != nil {
				s.log.line("up", fmt.Sprintf("%s stopped: %v", s.name, err))
			}
			return
		}
		if time.Since(began) > upSteady {
			pauses.Reset()
		}
		pause := pauses.Next()
		why := cmp.Or(err, errors.New("exit status 0"))
		s.log.line("up", fmt.Sprintf("%s ended (%v) and starts again in %s", s.name, why, pause.Round(time.Millisecond)))
		if wait.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// once runs the sidecar until it ends. When ctx is done it gets SIGTERM, and after s.stop
// it is killed.
func (s *supervised) once(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.program, "run")
	cmd.Env = s.environ
	cmd.SysProcAttr = ofSupervisor()
	cmd.Cancel = func() error {
		if runtime.GOOS == "windows" {
			return cmd.Process.Kill()
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = s.stop
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	s.log.copy(s.name, lines)
	err = cmd.Wait()
	if ctx.Err() != nil && cmd.ProcessState.Success() {
		return nil // it stopped as asked
	}
	return err
}

// sharedLog is written to by all sidecars, a line at a time.
type sharedLog struct {
	mu    sync.Mutex
	w     io.Writer
	paint *paint
}

func (l *sharedLog) line(name, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.w, "%s %s\n", l.paint.text(l.paint.bot(name), name+" |"), text) // nobody to tell
}

// copy writes what a sidecar writes with the bot's name before each line.
func (l *sharedLog) copy(name string, from io.Reader) {
	for lines := bufio.NewReaderSize(from, maxLogLine); ; {
		line, _, err := lines.ReadLine()
		if err != nil {
			return
		}
		l.line(name, string(line))
	}
}
