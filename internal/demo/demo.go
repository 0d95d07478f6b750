// Package demo shows what feishu-relay does, with nothing configured: real
// sidecar processes on one queue in a temporary folder, scripted bots, and a
// user. No Feishu account and no network beyond loopback.
//
// # Two acts
//
// script.yaml has the acts: who is in them, their scenes, and how these have to end. Behind all is package feishusim
// in Feishu's place. All bots are written on Feishu's official SDK, and know nothing of a relay: the SDK's base URL is
// their sidecar's gateway.
//
// In the first, three bots work together in groups.
//
// In the second, two bots speak to each other and not in a group. A person asks
// one in a private chat; it gives the job to the other through the peer tools of its
// sidecar, which it calls with the official MCP client. The other knows nothing of
// that: its sidecar brings it the job as a private chat (MAILBOX_GATEWAY), and takes
// what it answers there for the result.
//
// # What is real
//
// The sidecars are processes of the program itself (`feishu-relay run`), with
// an environment of their own.
//
// # What is shown
//
// Each message with the sender, and below it what every other sidecar made of
// it: depth, tier, reason, delivered or stopped. That is read from
// GET /v1/events of the sidecars, not known beforehand. Of mail between agents, the
// conversation in which the other bot got it; of tasks, the states that their
// giver's sidecar goes through.
//
// # What is checked
//
// Every scene has to end as it is written in the script. At the end every
// message must be delivered to or stopped for every other bot, in the words in
// which it was said, and no bot may have got one twice; each stands once in the
// transcript of its group, and in no other. Tasks have come to an end, the same at
// both sidecars, and no mail is left. A mismatch is an error of [Run].
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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/loopback"
	"feishu-relay/internal/subprocess"
)

// Bounds. Each is far over what a slow machine takes; beyond it the demo fails
// with the end of the sidecars' logs.
const (
	readyWithin   = 20 * time.Second // a sidecar after its start
	settledWithin = 60 * time.Second // a scene, or a step of it
	stoppedWithin = 20 * time.Second // a sidecar after SIGTERM; then it is killed
	pollEvery     = 10 * time.Millisecond
)

// Options says what to show. The zero value plays the scenes of all acts on a
// file queue and prints nothing.
type Options struct {
	Program string    // the feishu-relay to run; "": this one
	Backend string    // "file" or "redis"; "": file
	Act     int       // 1 or 2; 0: both, with Chat or View the first
	Chat    bool      // instead of the scenes, Input is the user; not in act 2
	View    bool      // after the scenes, leave the sidecars running until the context is done
	Keep    bool      // leave the folder there
	Input   io.Reader // lines of the user, with Chat; nil: none
	Prompt  string    // written before each line is read, with Chat
	Output  io.Writer // nil: nowhere
	Color   bool
	Chinese bool   // speak Chinese; else English
	Listen  string // host:port of the page, with Chat or View; "": one that the system chooses
	Token   string // API_TOKEN of the sidecar that serves it; needed where Listen is not loopback
}

// Run shows the demo and checks it. It returns when everything it started has
// ended, also when ctx is done; only a reader of [Options.Input] that waits for
// a line cannot be ended.
func Run(ctx context.Context, o Options) error {
	acts := o.acts()
	for i, number := range acts {
		s, err := newStage(o, number)
		if err != nil {
			return err
		}
		if i > 0 {
			s.out.plain("")
		}
		s.last = i == len(acts)-1
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// acts are the numbers of those to play.
func (o *Options) acts() []int {
	switch {
	case o.Act != 0:
		return []int{o.Act}
	case o.Chat, o.View:
		return []int{1}
	}
	return []int{1, 2}
}

// stage is what an act is played on.
type stage struct {
	Options
	script    *script
	last      bool // no other act follows
	viewed    bool // all was played and checked, and then looked at until the end
	dir       string
	board     *board
	out       *printer
	scene     scene              // that is played
	from      int                // how many messages there were before it
	feishu    *feishusim.Server  // a stand-in
	user      string             // the person in it
	apps      []feishusim.App    // of the bots; this and the next are in the order of the cast
	sidecars  []*sidecar         // none: not made yet
	tools     *mcp.ClientSession // all that the first bot of the second act knows of other agents
	thoughts  chan string        // what a bot without lines answers
	redis     *subprocess.Process
	fail      context.CancelCauseFunc // of the whole act; the first cause counts
	bots      sync.WaitGroup          // their goroutines
	listeners sync.WaitGroup          // the goroutines that watch sidecars and Feishu
}

var errInterrupted = errors.New("interrupted")

func newStage(o Options, number int) (*stage, error) {
	if o.Output == nil {
		o.Output = io.Discard
	}
	l := language{o.Chinese}
	s := &stage{Options: o, script: l.act(number), thoughts: make(chan string, 1)}
	s.out = newPrinter(o, l, s.script.Cast)
	s.board = newBoard(s.out, s.script)
	s.board.chat = o.Chat
	err := s.populate()
	if err == nil && o.Program == "" {
		s.Program, err = os.Executable()
	}
	if err == nil {
		s.dir, err = os.MkdirTemp("", "feishu-relay-demo-")
	}
	return s, wrap(err, "prepare the demo")
}

// aborted is what [must] panics with.
type aborted struct{ err error }

// must ends the steps of a script with err, unless that is nil.
func must(err error) {
	if err != nil {
		panic(aborted{err})
	}
}

// try plays the steps of a script and returns the error that ended them early.
func try(steps func()) (err error) {
	defer func() {
		r := recover()
		if a, ok := r.(aborted); ok {
			err = a.err
		} else if r != nil {
			panic(r)
		}
	}()
	steps()
	return nil
}

// wrap says at which step err occurred, unless that is nil.
func wrap(err error, step string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(step, args...), err)
}

// run is an act from its beginning to its end.
func (s *stage) run(ctx context.Context) error {
	playing, fail := context.WithCancelCause(ctx)
	s.fail = fail
	err := try(func() { s.play(playing) })
	if cause := context.Cause(playing); cause != nil {
		err = cause // rather than what that led to
	}
	fail(nil)
	stopped := s.stop()
	if ctx.Err() == nil {
		return s.finish(errors.Join(err, stopped))
	}
	// A terminal's Ctrl-C may have reached the sidecars as well, so how
	// they ended says nothing.
	s.out.plain("")
	if s.viewed {
		return s.finish(nil)
	}
	return s.finish(errInterrupted)
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
		t, _ := s.board.tally()
		s.out.plain("OK: " + t.text(s.out.language))
	}
	return err
}

// play starts everything, shows it and checks it.
func (s *stage) play(ctx context.Context) {
	if s.Chat && len(s.script.Groups) == 0 {
		must(errNoChat)
	}
	env := append(s.queue(ctx), s.script.Env...)
	s.out.title(s.script.Title)
	s.startSidecars(ctx, append(env, "FEISHU_BASE_URL="+s.openFeishu(ctx)))
	if len(s.script.Groups) == 0 {
		s.openTools(ctx)
	}
	s.startBots(ctx)
	if s.Chat {
		s.chatAct(ctx)
	} else {
		s.playScenes(ctx)
	}
	s.check(ctx)
	if s.View {
		s.viewed = true
		s.watchIt(s.out.say(" — Ctrl-C ends it", " — 按 Ctrl-C 结束"))
		<-ctx.Done()
	}
}

// queue starts Redis if it is the backend, and returns the sidecars' settings of the backend.
func (s *stage) queue(ctx context.Context) (env []string) {
	if s.Backend != "redis" {
		return []string{"RELAY_BACKEND=file"}
	}
	addr, err := s.startRedis(ctx)
	must(wrap(err, "start redis (without it: --backend file)"))
	return []string{"RELAY_BACKEND=redis", "REDIS_URL=redis://" + addr}
}

func (s *stage) startRedis(ctx context.Context) (addr string, err error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("the program redis-server is needed; install the package redis-server (or redis): %w", err)
	}
	if addr, err = loopback.Addr(); err != nil {
		return "", err
	}
	host, port, _ := net.SplitHostPort(addr)
	log := filepath.Join(s.dir, "redis.log")
	s.redis, err = subprocess.Start(s.dir, log, nil, program,
		"--bind", host, "--port", port, "--save", "", "--appendonly", "no")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err = s.redis.Ready(ctx, func(context.Context) bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return addr, wrap(err, "%s", subprocess.LogEnd(log))
}

// startSidecars starts one for each bot of the cast, side by side, and says how long that took.
func (s *stage) startSidecars(ctx context.Context, env []string) {
	for i := range s.script.Cast {
		s.sidecars = append(s.sidecars, s.newSidecar(i, slices.Clone(env)))
	}
	began := time.Now()
	starting, each := errgroup.WithContext(ctx)
	for _, sc := range s.sidecars {
		starting.Go(func() error { return sc.start(each) })
	}
	must(starting.Wait())
	queue := s.out.say("file", "文件")
	if s.redis != nil {
		queue = "Redis"
	}
	s.out.title(s.out.say("%s sidecars are ready after %d ms, on a %s queue in %s", "%s个边车在 %d 毫秒内就绪，用%s队列，目录 %s",
		s.script.Count, time.Since(began).Milliseconds(), queue, s.dir))
	if s.Chat || s.View {
		s.watchIt("")
	}
}

// watchIt prints where the page is.
func (s *stage) watchIt(more string) {
	text := s.out.say("watch it in a browser: http://%s/", "在浏览器里看：http://%s/", s.sidecars[0].addr) + more
	if s.Token != "" {
		text += s.out.say(" (it asks for API_TOKEN)", "（要输入 API_TOKEN）")
	}
	s.out.note(text)
}

// stop ends everything when the bots' context has ended, in the order of the flow: bots, sidecars, the rest.
func (s *stage) stop() error {
	s.bots.Wait()
	if s.tools != nil {
		_ = s.tools.Close() // nothing is under way any more
	}
	errs := make([]error, len(s.sidecars))
	var ending sync.WaitGroup
	for i, sc := range s.sidecars {
		ending.Go(func() { errs[i] = sc.stop() })
	}
	ending.Wait()
	s.listeners.Wait()
	errs = append(errs, s.feishu.Close())
	if s.redis != nil {
		s.redis.Kill()
	}
	return errors.Join(errs...)
}
