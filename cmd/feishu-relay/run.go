package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"feishu-relay/internal/words"
	"feishu-relay/sidecar"
)

// The garbage collector lets the heap, of some MiB, grow to five times its size: it costs a quarter of the processor
// otherwise. Near memoryLimit it runs more often, because the deployments allow 256 MiB.
const gcPercent, memoryLimit = 400, 224 << 20

type runCommand struct{}

func (*runCommand) showsNotices() {}

func (*runCommand) moreHelp(w io.Writer) {
	fmt.Fprint(w, "\nEnvironment:\n\n")
	for _, v := range variables() {
		initial := "default " + v.initial()
		if v.unset == "required" {
			initial = v.unset
		}
		fmt.Fprintf(w, "  %-24s %s (%s)\n", v.name, v.desc, initial)
	}
}

func (*runCommand) run(p *cli, _ []string) error {
	stderr := p.stderr
	cfg, err := loadConfig()
	if err != nil {
		fmt.Fprintf(stderr, "feishu-relay: the configuration has mistakes:\n")
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintf(stderr, "  ✗ %s\n", line)
		}
		fmt.Fprint(stderr, "`feishu-relay run --help` lists all variables; `feishu-relay check` tries them; "+
			"`feishu-relay init` sets up a bot, `feishu-relay demo` shows what it is.\n")
		return errFailed
	}
	logger := cfg.logger(stderr)
	for _, n := range append(p.notices, checkEnvironment(os.Environ())...) {
		f := n.in(words.Words{})
		logger.Warn("a setting may have unexpected effects", "detail", f.Detail, "mend", f.Mend)
	}
	if os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("DATA_DIR") == "" {
		logger.Info("DATA_DIR is not set: the folder is the default, which nanobot shares; "+
			"sidecars of other users need the same one", "folder", cfg.DataDir)
	}
	return sidecar.Run(p.ctx, cfg.Config, sidecar.Options{Version: versionText(), Logger: logger, Settings: cfg.shown(),
		SelfTest: cfg.testSelf})
}

// sidecarAddr is where the sidecar of this environment is reached: at the
// --addr given, else at LISTEN_ADDR.
func sidecarAddr(given string) (string, error) {
	name := "--addr"
	if given == "" {
		name, given = "LISTEN_ADDR", cmp.Or(os.Getenv("LISTEN_ADDR"), "127.0.0.1:8787")
	}
	if _, _, err := net.SplitHostPort(given); err != nil {
		return "", fmt.Errorf("%s: want host:port, such as 127.0.0.1:8787: %w", name, err)
	}
	return sidecar.Reachable(given), nil
}

// healthWithin is how long a sidecar may take to say that it is alive.
const healthWithin = 3 * time.Second

// healthCommand asks the sidecar of the same environment, for images without a shell and without curl.
type healthCommand struct {
	reach
	Ready bool `long:"ready"`
}

func (c *healthCommand) run(p *cli, _ []string) error {
	a, err := c.client(p, false, words.Words{})
	if err != nil {
		return err
	}
	path := "/healthz"
	if c.Ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(p.ctx, healthWithin)
	defer cancel()
	var answer struct{ Status string }
	if err := a.get(ctx, path, &answer); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, answer.Status)
	return err
}
