// Package demo shows what feishu-relay does, with nothing configured: three
// real sidecar processes on one queue in a temporary folder, three scripted
// bots, and a user. No Feishu account and no network beyond loopback.
//
// # What is real
//
// The sidecars are processes of the program itself (`feishu-relay run`), with
// an environment of their own. The bots know nothing but the local API:
// POST /v1/inbound, POST /v1/outbound and GET /v1/stream. Only Feishu is
// played: package demo hands the user's words to every bot of the group, and
// gives each message its id and its time.
//
// # What is shown
//
// Each message with the sender, and below it what every other sidecar made of
// it: depth, tier, reason, delivered or stopped. That is read from
// GET /v1/events of the sidecars, not known beforehand.
//
// # What is checked
//
// Every scene has to end as it is written in the script. At the end every
// message must be delivered to or stopped for every other bot, and no bot may
// have got one twice; each stands once in the transcript of its group, and in
// no other. A mismatch is an error of [Run].
//
// # What is left
//
// Nothing: the sidecars are asked to stop and have to exit with 0, and the
// folder is removed unless [Options.Keep] is set or something went wrong.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"feishu-relay/internal/redistest"
)

// Bounds. Each is far over what a slow machine takes; beyond it the demo fails
// with the end of the sidecars' logs.
const (
	readyWithin   = 20 * time.Second // a sidecar after its start
	settledWithin = 10 * time.Second // a scene, or a step of it
	stoppedWithin = 20 * time.Second // a sidecar after SIGTERM; then it is killed
	pollEvery     = 10 * time.Millisecond
)

// Options says what to show. The zero value plays the scenes on a file queue
// and prints nothing.
type Options struct {
	Program string    // the feishu-relay to run; "": this one
	Backend string    // "file" or "redis"; "": file
	Chat    bool      // instead of the scenes, Input is the user
	Keep    bool      // leave the folder there
	Input   io.Reader // lines of the user, with Chat; nil: none
	Prompt  string    // written before each line is read, with Chat
	Output  io.Writer // nil: nowhere
	Color   bool
}

// Run shows the demo and checks it. It returns when everything it started has
// ended, also when ctx is done; only a reader of [Options.Input] that waits for
// a line cannot be ended.
func Run(ctx context.Context, o Options) error {
	s, err := newStage(o)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// stage is everything a demo consists of.
type stage struct {
	Options
	dir       string
	client    *client
	board     *board
	out       *printer
	bots      []*bot
	sidecars  []*sidecar // in the order of bots
	redis     *redistest.Server
	fail      context.CancelCauseFunc // of the whole demo; the first cause counts
	listeners sync.WaitGroup          // the goroutines that bots and watchers are
}

var errInterrupted = errors.New("interrupted")

func newStage(o Options) (_ *stage, err error) {
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
	}
	s := &stage{Options: o, client: newClient(), out: &printer{w: o.Output, color: o.Color}}
	s.board = newBoard(s.out)
	if s.dir, err = os.MkdirTemp("", "feishu-relay-demo-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return s, nil
}

// run is the demo from its beginning to its end.
func (s *stage) run(ctx context.Context) error {
	playing, fail := context.WithCancelCause(ctx)
	s.fail = fail
	err := s.play(playing)
	if cause := context.Cause(playing); cause != nil {
		err = cause // rather than what that led to
	}
	fail(nil)
	stopped := s.stop()
	if ctx.Err() != nil {
		// A terminal's Ctrl-C may have reached the sidecars as well, so how
		// they ended tells nothing.
		s.out.blank()
		return s.finish(errInterrupted)
	}
	return s.finish(errors.Join(err, stopped))
}

// finish says how it went, and clears up.
func (s *stage) finish(err error) error {
	failed := err != nil && !errors.Is(err, errInterrupted) && len(s.sidecars) > 0
	if failed {
		s.out.logs(s.sidecars)
	}
	if s.Keep || failed {
		s.out.kept(s.dir)
	} else if e := os.RemoveAll(s.dir); e != nil {
		err = errors.Join(err, fmt.Errorf("remove the folder: %w", e))
	}
	if err == nil {
		s.out.plain("OK: " + s.board.tally().String())
	}
	return err
}

// play starts everything, shows it and checks it.
func (s *stage) play(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	show := s.playScenes
	if s.Chat {
		show = s.chat
	}
	if err := show(ctx); err != nil {
		return err
	}
	return s.check(ctx)
}

// start starts redis, the sidecars and the bots.
func (s *stage) start(ctx context.Context) error {
	backend := []string{"RELAY_BACKEND=file"}
	if s.Backend == "redis" {
		folder := filepath.Join(s.dir, "redis")
		err := os.Mkdir(folder, 0o700)
		if err == nil {
			s.redis, err = redistest.Launch(folder)
		}
		if err != nil {
			return fmt.Errorf("start redis (without it: --backend file): %w", err)
		}
		backend = []string{"RELAY_BACKEND=redis", "REDIS_URL=" + s.redis.URL()}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "groups.json"), groupsFile(), 0o600); err != nil {
		return fmt.Errorf("write the groups file: %w", err)
	}
	for _, c := range cast {
		s.sidecars = append(s.sidecars, newSidecar(s, c, backend))
		s.bots = append(s.bots, &bot{character: c, stage: s, sidecar: s.sidecars[len(s.sidecars)-1]})
	}
	began := time.Now()
	starting, each := errgroup.WithContext(ctx)
	for _, sc := range s.sidecars {
		starting.Go(func() error { return sc.start(each) })
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	s.out.title(fmt.Sprintf("three sidecars are ready after %d ms, on a %s queue in %s",
		time.Since(began).Milliseconds(), s.queueName(), s.dir))
	for _, b := range s.bots {
		if err := b.connect(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) queueName() string {
	if s.redis != nil {
		return "redis"
	}
	return "file"
}

// stop ends everything, in the order of the flow: bots, sidecars, redis.
func (s *stage) stop() error {
	for _, b := range s.bots {
		b.disconnect()
	}
	errs := make([]error, len(s.sidecars))
	var ending sync.WaitGroup
	for i, sc := range s.sidecars {
		ending.Go(func() { errs[i] = sc.stop() })
	}
	ending.Wait()
	s.listeners.Wait()
	if s.redis != nil {
		s.redis.Stop()
	}
	return errors.Join(errs...)
}
