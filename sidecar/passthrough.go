package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/gateway"
	"feishu-relay/httpapi"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
)

// A disk that could not be used at the start is looked at again every foldersAgain. If it looks usable and is refused
// all the same, it is looked at later and later, up to foldersMost.
const (
	foldersAgain = 5 * time.Second
	foldersMost  = time.Minute
)

// mendFolders says how to fix what keeps a sidecar's folders from being used.
const mendFolders = "set DATA_DIR (or RELAY_DIR, TRANSCRIPT_DIR, MAILBOX_DIR) to a folder that this user can write, " +
	"on a disk with room"

// errNoDisk is why nothing is relayed.
var errNoDisk = errors.New("the disk cannot be used")

// setting is an error that the operator has to fix, whatever the disk does.
type setting struct{ error }

func (s *setting) Unwrap() error { return s.error }

// Run opens a sidecar and runs it until ctx is done. If it cannot be opened because of its disk, and has a gateway, the
// bot's calls and events pass and nothing is relayed, until the sidecar can be opened.
func Run(ctx context.Context, cfg Config, opts Options) error {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	for tries := 0; ; tries++ {
		s, err := New(cfg, opts)
		if err == nil {
			return s.Run(ctx)
		}
		if _, ok := errors.AsType[*setting](err); ok || cfg.Gateway.Addr == "" {
			return err
		}
		opts.Logger.Error("the disk cannot be used: the bot's traffic passes through, and NOTHING IS RELAYED until it can; "+
			mendFolders, keyErr, err)
		pause := wait.Doubled(foldersAgain, foldersMost, tries)
		if failed := passThrough(ctx, cfg, opts.Logger, err, pause); failed != nil || ctx.Err() != nil {
			return failed
		}
	}
}

// passThrough serves the bot until the folders can be used, for pause at least, or ctx is done.
func passThrough(ctx context.Context, cfg Config, log *slog.Logger, why error, pause time.Duration) (err error) {
	cfg.BaseURL = cmp.Or(cfg.BaseURL, &defaultBase)
	api := feishu.NewAPI(cfg.BaseURL.String(), "", "")
	opts := gateway.Options{API: api, Book: feishu.NewDirectory(nil, api, log), Logger: log}
	f := &front{}
	defer f.close()
	if err := f.open(&cfg, opts, nil); err != nil {
		return err
	}
	unready := httpapi.Unready(fmt.Sprintf("%v: %v; %s", errNoDisk, why, mendFolders))
	status, err := listenOn("LISTEN_ADDR", cfg.ListenAddr, unready, log)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { status.serve("local API", fail) })
	serving.Go(func() { f.serve(fail) })
	serving.Go(func() { f.gateway.Run(ctx) })
	for wait.Sleep(ctx, pause) == nil && !usable(&cfg) {
		pause = foldersAgain
	}
	f.stop()
	status.close()
	fail(nil)
	serving.Wait()
	return nil
}

// usable reports whether a sidecar's folders can be made and written. MAILBOX_DIR is left out: as a rule it is
// on the same disk, and else the pauses between attempts grow.
func usable(cfg *Config) bool {
	for _, dir := range []string{cfg.RelayDir, cfg.TranscriptDir} {
		root, err := safefile.OpenDir(dir)
		if err != nil || root.Close() != nil || writable(dir) != nil {
			return false
		}
	}
	return true
}
