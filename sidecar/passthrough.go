package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/entry"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/httpapi"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// foldersAgain is how often a disk that could not be used at the start is tried
// again, and foldersMost the longest pause where it looks usable and is refused all the same.
const (
	foldersAgain = 5 * time.Second
	foldersMost  = time.Minute
)

// Run opens a sidecar and runs it until ctx is done. Where it cannot be opened
// for the disk's sake and has a gateway, the bot is served all the same: its
// calls and events pass, nothing is relayed, and the sidecar takes over as soon
// as its folders can be used. Any other fault is an error.
func Run(ctx context.Context, cfg Config, opts Options) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for tries := 0; ; tries++ {
		s, err := New(cfg, opts)
		if err == nil {
			return s.Run(ctx)
		}
		if _, ok := errors.AsType[*diskTrouble](err); !ok || cfg.Gateway.Addr == "" {
			return err
		}
		opts.Logger.Error("the disk cannot be used: the bot's traffic passes through, and NOTHING IS RELAYED until it can; "+mendFolders, keyErr, err)
		pause := wait.Doubled(foldersAgain, foldersMost, tries)
		if perr := passThrough(ctx, cfg, opts.Logger, err, pause); perr != nil {
			return errors.Join(err, perr)
		}
		if ctx.Err() != nil {
			opts.Logger.Info("stopped")
			return nil
		}
		opts.Logger.Info("the disk is tried again")
	}
}

// mendFolders says how to fix what keeps a sidecar's folders from being used.
const mendFolders = "set DATA_DIR (or RELAY_DIR, TRANSCRIPT_DIR, MAILBOX_DIR) to a folder that this user can write, on a disk with room"

// diskTrouble is an error that keeps a sidecar from opening and may be over when
// the disk can be used again.
type diskTrouble struct{ error }

func (d *diskTrouble) Unwrap() error { return d.error }

// onDisk marks the error of a step of New that has to do with files only.
func onDisk(err error) error {
	if _, ok := errors.AsType[*setting](err); err == nil || ok {
		return err
	}
	return &diskTrouble{err}
}

// setting is an error that the operator has to fix, whatever the disk does.
type setting struct{ error }

func (s *setting) Unwrap() error { return s.error }

// passThrough serves the bot until the folders can be used, for pause at least, or ctx is done.
func passThrough(ctx context.Context, cfg Config, log *slog.Logger, why error, pause time.Duration) error {
	if cfg.BaseURL == nil {
		cfg.BaseURL = &defaultBase
	}
	opts := gatewayOptions(&cfg, log, nil)
	opts.Host, opts.Book, opts.API = noHost{log}, feishu.OpenBook(nil, "", log), feishu.NewAPI(cfg.BaseURL.String(), "", "")
	if cfg.Mailbox.Gateway { // none of their ids is known; none reaches Feishu, and the bot is to try again
		var err error
		if opts.Peers, err = peerchat.Open(peerchat.Options{Self: opts.Book.Self, Closed: true, Logger: log}); err != nil {
			return err
		}
	}
	f := &front{}
	if err := f.bind(&cfg, opts.Webhook, log); err != nil {
		return err
	}
	defer f.close()
	opts.Listens, opts.Certified = f.listen.Addr(), f.certified
	g, err := gateway.New(opts)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	f.gateway = g
	f.entry, err = entry.New(entryOptions(&cfg, g.Handler(), log, func(string) {}))
	if err != nil {
		return fmt.Errorf("GATEWAY_TLS: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	settling := sync.WaitGroup{}
	api, err := net.Listen("tcp", cfg.ListenAddr)
	if err != nil {
		return bindError("LISTEN_ADDR", err)
	}
	defer func() { _ = api.Close() }() // it may not have come to be served
	unready, api := bounded(api, httpapi.Unready(fmt.Sprintf("the disk cannot be used: %v; %s", why, mendFolders)), log)
	defer unready.Close()
	go func() {
		if err := unready.Serve(api); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("%w: local API: %w", errListener, err))
		}
	}()
	go f.serve(fail)
	settling.Go(func() { g.Run(ctx) })
	for wait.Sleep(ctx, pause) == nil && !usable(&cfg) {
		pause = foldersAgain
	}
	stopping, cancel := context.WithTimeout(context.Background(), finishGateway)
	defer cancel()
	f.stop(stopping)
	fail(nil)
	settling.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errListener) {
		return cause
	}
	return nil
}

// usable reports whether a sidecar's folders can be made and written.
func usable(cfg *Config) bool {
	dirs := []string{cfg.RelayDir, cfg.TranscriptDir}
	if cfg.Mailbox.On {
		dirs = append(dirs, cfg.Mailbox.Dir)
	}
	for _, dir := range dirs {
		root, err := safefile.OpenDir(dir)
		if err != nil {
			return false
		}
		_ = root.Close()
		if writable(dir) != nil {
			return false
		}
	}
	return true
}

// noHost is the host of a gateway without a sidecar: everything passes, and nothing is recorded or relayed.
type noHost struct{ log *slog.Logger }

var _ gateway.Host = noHost{}

func (h noHost) Sent(_ context.Context, m gateway.Sent) error {
	h.log.Error("a message of the bot is not relayed: the disk cannot be used", keyChat, m.ChatID, keyMsg, m.ID)
	return nil
}

var errNoDisk = errors.New("the disk cannot be used")

// Native refuses: Feishu keeps the event and delivers it again.
func (noHost) Native(context.Context, feishu.Message, bool) error { return errNoDisk }

func (noHost) Heard(context.Context, feishu.Message, []byte) (p feishu.Passage, err error) {
	return p, nil
}

func (noHost) Hearing(feishu.Message)                               {}
func (noHost) Edited(gateway.Sent)                                  {}
func (noHost) Recalled(relay.ChatID, relay.MessageID, relay.Millis) {}
func (noHost) OwnReaction(relay.MessageID, string) bool             { return false }
func (noHost) Joined(relay.ChatID, relay.Millis)                    {}
func (noHost) Passed(relay.MessageID)                               {}
func (noHost) Left(relay.ChatID, relay.Millis)                      {}
func (noHost) Injected(relay.MessageID) (m feishu.Message, ok bool) { return m, false }
func (noHost) Peer(relay.OpenID) (b feishu.Bot, ok bool)            { return b, false }
