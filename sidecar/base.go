package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"feishu-relay/core"
	"feishu-relay/internal/safefile"
)

// base is what every part of a sidecar has: its settings, its log, its counters and
// what it has opened.
type base struct {
	cfg       Config
	version   string
	settings  map[string]string // for the status
	selfTest  func(http.ResponseWriter, *http.Request, Status)
	log       *slog.Logger
	trace     func(step string)
	metrics   *metrics
	problems  *problems
	processed *os.Root
	closers   []func() error // last opened first
}

func newBase(cfg Config, opts Options) *base {
	if cfg.BaseURL == nil {
		cfg.BaseURL = &defaultBase
	}
	b := &base{cfg: cfg, version: opts.Version, settings: opts.Settings, selfTest: opts.SelfTest, trace: opts.Trace,
		log:     newLimitedLog(cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)).Handler()),
		metrics: newMetrics(cfg.Agent), problems: newProblems()}
	if b.trace == nil {
		b.trace = func(string) {}
	}
	return b
}

// name is the agent's name as files are named for it.
func (b *base) name() string { return safefile.Name(string(b.cfg.Agent)) }

func (b *base) onClose(f func() error) { b.closers = append(b.closers, f) }

func (b *base) close() error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	b.closers = nil
	return errors.Join(errs...)
}

// folder opens a folder below RELAY_DIR until the sidecar closes.
func (b *base) folder(path ...string) (*os.Root, error) {
	root, err := safefile.OpenDir(b.cfg.RelayDir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.cfg.setBy("RELAY_DIR", b.cfg.RelayDir), err)
	}
	for _, name := range path {
		above := root
		root, err = safefile.OpenSub(above, name)
		if err = errors.Join(err, above.Close()); err != nil {
			return nil, err
		}
	}
	b.onClose(root.Close)
	return root, nil
}

// openFolders opens what every part needs.
func (b *base) openFolders() (err error) {
	for _, path := range [][]string{{"agents", b.name()}, {core.Side}, {"offsets"}, {"processed"}} { // they are no links
		if b.processed, err = b.folder(path...); err != nil {
			return err
		}
	}
	if fs := safefile.NetworkFS(b.processed.Name()); fs != "" {
		b.log.Warn("the relay folder is on a network file system, where appends, locks and change events are not reliable; "+
			"use Redis instead", "folder", b.cfg.RelayDir, "filesystem", fs)
	}
	return nil
}
