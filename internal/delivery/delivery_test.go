package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/delivery"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

const (
	maxAge  = 10 * time.Minute
	timeout = 15 * time.Minute
)

// bot is a channel, and the bot behind it. A write waits for an answer.
type bot struct {
	name   string
	serial bool

	mu      sync.Mutex
	open    bool
	changed chan struct{}
	ended   chan struct{}
	wrote   []string
	answers map[relay.MessageID]chan error
	causes  []error // with which writes were cancelled
}

func newBot(name string, open, serial bool) *bot {
	return &bot{name: name, open: open, serial: serial, changed: make(chan struct{}), ended: make(chan struct{}),
		answers: map[relay.MessageID]chan error{}}
}

func (b *bot) Name() string                         { return b.name }
func (b *bot) Serial() bool                         { return b.serial }
func (b *bot) Pauses() delivery.Pauses              { return delivery.Pauses{First: time.Second, Most: time.Minute} }
func (b *bot) Open() bool                           { b.mu.Lock(); defer b.mu.Unlock(); return b.open }
func (b *bot) Present() bool                        { return b.Open() }
func (b *bot) Changed() <-chan struct{}             { b.mu.Lock(); defer b.mu.Unlock(); return b.changed }
func (b *bot) answer(id relay.MessageID, err error) { b.channel(id) <- err }
func (b *bot) written() []string                    { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.wrote) }

func (b *bot) channel(id relay.MessageID) chan error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answers[id] == nil {
		b.answers[id] = make(chan error, 1)
	}
	return b.answers[id]
}

// set opens the channel, or ends its connection.
func (b *bot) set(open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = open
	close(b.changed)
	b.changed = make(chan struct{})
	if !open {
		close(b.ended)
		b.ended = make(chan struct{})
	}
}

func (b *bot) Write(ctx context.Context, m *delivery.Message, written func(<-chan struct{})) error {
	b.mu.Lock()
	open, ended := b.open, b.ended
	if open {
		b.wrote = append(b.wrote, string(m.ID))
	}
	b.mu.Unlock()
	if !open {
		return delivery.ErrNotWritten
	}
	written(ended)
	select {
	case err := <-b.channel(m.ID):
		return err
	case <-ended:
		return delivery.ErrEnded
	case <-ctx.Done():
		b.mu.Lock()
		b.causes = append(b.causes, context.Cause(ctx))
		b.mu.Unlock()
		return ctx.Err()
	}
}

// room is deliveries under test.
type room struct {
	*delivery.Deliveries
	t    *testing.T
	ctx  context.Context
	stop func()
	done chan struct{}

	delivering sync.WaitGroup

	mu      sync.Mutex
	results map[relay.MessageID]delivery.Result
	nexts   []string
	kept    []string
	late    []string
}

func open(t *testing.T, root *os.Root, channels ...delivery.Channel) *room {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &room{t: t, ctx: ctx, done: make(chan struct{}), results: map[relay.MessageID]delivery.Result{}}
	d, err := delivery.New(delivery.Options{Root: root, MaxAge: maxAge, Timeout: timeout,
		Resumed: func(m *delivery.Message) delivery.Hooks { return r.hooks(m.ID) },
		Late: func(m delivery.Ref, res delivery.Result) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.late = append(r.late, fmt.Sprint(m.ID, " ", res.State))
		}}, channels...)
	if err != nil {
		t.Fatal(err)
	}
	r.Deliveries = d
	go func() {
		defer close(r.done)
		d.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-r.done
		r.delivering.Wait()
	}
	t.Cleanup(r.stop)
	return r
}

func (r *room) hooks(id relay.MessageID) delivery.Hooks {
	return delivery.Hooks{
		Next: func() { r.mu.Lock(); defer r.mu.Unlock(); r.nexts = append(r.nexts, string(id)) },
		Kept: func() { r.mu.Lock(); defer r.mu.Unlock(); r.kept = append(r.kept, string(id)) },
		Ended: func(res delivery.Result) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results[id] = res
		}}
}

func message(id relay.MessageID, chat relay.ChatID) delivery.Message {
	return delivery.Message{Ref: delivery.Ref{ID: id, Key: string(id), Channel: "feishu", Chat: chat, Sent: time.Now()},
		Inbound: relay.Inbound{Channel: "feishu", ChatID: chat, Content: "text of " + string(id)}}
}

func (r *room) deliver(id relay.MessageID, chat relay.ChatID) {
	m := message(id, chat)
	r.delivering.Go(func() { _, _ = r.Deliver(r.ctx, m, r.hooks(id)) })
	synctest.Wait()
}

func (r *room) state(id relay.MessageID) delivery.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[id].State
}

func (r *room) want(id relay.MessageID, want delivery.State) {
	r.t.Helper()
	synctest.Wait()
	if got := r.state(id); got != want {
		r.t.Errorf("%s ended as %q, want %q", id, got, want)
	}
}

func (r *room) onDisk(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.kept)
	if !slices.Equal(r.kept, want) {
		r.t.Errorf("on disk: %v, want %v", r.kept, want)
	}
}

func wrote(t *testing.T, b *bot, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := b.written(); !slices.Equal(got, want) {
		t.Errorf("%s was given %v, want %v", b.name, got, want)
	}
}

func (r *room) settle(id relay.MessageID, to delivery.State) error {
	r.t.Helper()
	err := r.Settle(context.Background(), id, to, "")
	synctest.Wait()
	return err
}

func in(t *testing.T, f func(t *testing.T, root *os.Root)) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	synctest.Test(t, func(t *testing.T) { f(t, root) })
}

func TestASlowBotIsWrittenToOnce(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		slow := newBot("webhook", true, true)
		other := newBot("stream", false, false)
		r := open(t, root, slow, other)
		r.deliver("om_1", "oc_x")
		other.set(true)
		time.Sleep(14 * time.Minute)
		wrote(t, slow, "om_1")
		wrote(t, other)
		if p := r.InProgress(); len(p) != 1 || p[0].RelayMsgID != "om_1" || p[0].Door != "webhook" || p[0].ChatID != "oc_x" {
			t.Errorf("in progress: %+v", p)
		}
		slow.answer("om_1", nil)
		r.want("om_1", delivery.Delivered)
		wrote(t, slow, "om_1")
		if p := r.InProgress(); len(p) != 0 {
			t.Errorf("in progress: %+v", p)
		}
	})
}

func TestHowADeliveryEnds(t *testing.T) {
	failed := errors.New("answered 500")
	for name, c := range map[string]struct {
		answers []error
		want    delivery.State
	}{
		"answered":              {[]error{nil}, delivery.Delivered},
		"refused":               {[]error{fmt.Errorf("%w: 400", delivery.ErrRefused)}, delivery.Refused},
		"answered after errors": {[]error{failed, failed, nil}, delivery.Delivered},
		"refused after errors":  {[]error{failed, delivery.ErrRefused}, delivery.Refused},
		"not reached at first":  {[]error{delivery.ErrNotWritten, nil}, delivery.Delivered},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, root *os.Root) {
				b := newBot("webhook", true, true)
				r := open(t, root, b)
				go func() {
					for _, err := range c.answers {
						b.answer("om_1", err)
					}
				}()
				r.deliver("om_1", "oc_x")
				time.Sleep(5 * time.Minute)
				r.want("om_1", c.want)
				if got := len(b.written()); got != len(c.answers) {
					t.Errorf("written %d times, want %d", got, len(c.answers))
				}
			})
		})
	}
}

func TestErrorsExpireAfterMaxAgeSinceTheTurn(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		time.Sleep(9 * time.Minute) // answered after nine minutes, which do not count as failing
		r.deliver("om_2", "oc_x")
		b.answer("om_1", nil)
		go func() {
			for {
				select {
				case b.channel("om_2") <- errors.New("answered 503"):
				case <-r.ctx.Done():
					return
				}
			}
		}()
		time.Sleep(maxAge - time.Minute)
		r.want("om_2", "")
		time.Sleep(2 * time.Minute)
		r.want("om_2", delivery.Expired)
		r.stop()
	})
}

func TestTheTimeOut(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		r.deliver("om_2", "oc_x")
		wrote(t, b, "om_1")
		time.Sleep(timeout)
		r.want("om_1", delivery.TimedOut)
		if len(b.causes) != 1 || !errors.Is(b.causes[0], delivery.ErrTimedOut) {
			t.Errorf("the write was not ended by the time-out: %v", b.causes)
		}
		wrote(t, b, "om_1", "om_2") // the chat goes on
		if err := r.settle("om_1", delivery.Delivered); err != nil {
			t.Errorf("a late answer: %v", err)
		}
		if !slices.Equal(r.late, []string{"om_1 delivered"}) {
			t.Errorf("late answers: %v", r.late)
		}
		if err := r.settle("om_1", delivery.Delivered); err != nil || len(r.late) != 1 {
			t.Errorf("a repeat: %v, %v", err, r.late)
		}
	})
}

func TestALateAnswerAfterARestart(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		r.deliver("om_2", "oc_y")
		time.Sleep(timeout)
		r.want("om_1", delivery.TimedOut)
		r.want("om_2", delivery.TimedOut)
		onDisk(t, root, "om_1.json", "om_2.json")
		r.stop()
		r = open(t, root, b)
		if err := r.settle("om_1", delivery.Delivered); err != nil || !slices.Equal(r.late, []string{"om_1 delivered"}) {
			t.Errorf("a late answer: %v, %v", err, r.late)
		}
		onDisk(t, root, "om_2.json")
		r.stop()
		time.Sleep(24 * time.Hour)
		r = open(t, root, b)
		if err := r.settle("om_2", delivery.Delivered); !errors.Is(err, delivery.ErrUnknown) {
			t.Errorf("an answer after a day: %v", err)
		}
		onDisk(t, root)
		wrote(t, b, "om_1", "om_2")
		r.stop()
	})
}

// What timed out is not written again after a restart, also where the disk did not
// take that it had.
func TestATimeOutThatIsNotKept(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		time.Sleep(timeout - time.Second)
		onDisk(t, root, "om_1.json")
		if err := errors.Join(root.Remove("om_1.json"), root.Mkdir("om_1.json", 0o700)); err != nil { // no file can take its place
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r.want("om_1", delivery.TimedOut)
		onDisk(t, root)
		r.stop()
	})
}

func TestTheEndOfTheConnection(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("gateway", true, false)
		r := open(t, root, b)
		for i := range 5 {
			r.deliver(relay.MessageID(fmt.Sprint("om_", i)), "oc_x")
		}
		wrote(t, b, "om_0", "om_1", "om_2", "om_3", "om_4")
		b.answer("om_1", nil)
		r.want("om_1", delivery.Delivered)
		b.set(false)
		b.set(true)
		r.deliver("om_5", "oc_x")
		time.Sleep(time.Second)
		wrote(t, b, "om_0", "om_1", "om_2", "om_3", "om_4", "om_0", "om_2", "om_3", "om_4", "om_5")
	})
}

func TestSerialChannelsHoldTheChatOnly(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		r.deliver("om_2", "oc_x")
		r.deliver("om_3", "oc_y")
		wrote(t, b, "om_1", "om_3")
		b.answer("om_1", fmt.Errorf("%w", delivery.ErrAccepted))
		wrote(t, b, "om_1", "om_3", "om_2")
		if got := len(r.InProgress()); got != 3 {
			t.Errorf("%d messages in progress, want 3", got)
		}
	})
}

func TestAMessageExpiresWhenNoChannelWasOpen(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("gateway", false, false)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		time.Sleep(maxAge + time.Second)
		r.want("om_1", delivery.Expired)
		wrote(t, b)
		r.deliver("om_2", "oc_x")
		time.Sleep(maxAge - time.Second)
		b.set(true)
		wrote(t, b, "om_2")
	})
}

func TestItIsOfferedToEveryChannel(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		gateway, stream := newBot("gateway", false, false), newBot("stream", false, false)
		r := open(t, root, gateway, stream)
		r.deliver("om_1", "oc_x")
		stream.mu.Lock() // a reader that leaves before anything is written
		close(stream.changed)
		stream.changed = make(chan struct{})
		stream.mu.Unlock()
		gateway.set(true)
		wrote(t, gateway, "om_1")
		wrote(t, stream)
	})
}

func TestAcceptedMessagesSurviveARestart(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		for _, id := range []relay.MessageID{"om_1", "om_2", "om_3", "om_4", "om_5"} {
			r.deliver(id, "oc_x")
			b.answer(id, delivery.ErrAccepted)
		}
		wrote(t, b, "om_1", "om_2", "om_3", "om_4", "om_5")
		r.onDisk("om_1", "om_2", "om_3", "om_4", "om_5")
		r.stop()

		b = newBot("webhook", true, true)
		r = open(t, root, b)
		synctest.Wait()
		wrote(t, b)
		if !r.Has("om_1") || len(r.InProgress()) != 5 {
			t.Errorf("after the restart: %+v", r.InProgress())
		}
		if err := r.settle("om_1", delivery.Delivered); err != nil {
			t.Error(err)
		}
		if err := r.settle("om_2", delivery.Refused); err != nil {
			t.Error(err)
		}
		if err := r.settle("om_3", delivery.Retry); err != nil {
			t.Error(err)
		}
		r.want("om_1", delivery.Delivered)
		r.want("om_2", delivery.Refused)
		time.Sleep(time.Minute)
		wrote(t, b, "om_3")
		b.answer("om_3", nil)
		r.want("om_3", delivery.Delivered)
		time.Sleep(timeout)
		r.want("om_4", delivery.TimedOut)
		r.stop()
		r = open(t, root, b)
		if p := r.InProgress(); len(p) != 0 {
			t.Errorf("still on disk: %+v", p)
		}
	})
}

func TestAMessageInProgressIsWrittenAgainAfterARestart(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("gateway", true, false)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		r.deliver("om_2", "oc_x")
		time.Sleep(2 * time.Second)
		r.onDisk("om_1", "om_2")
		r.stop()
		b = newBot("gateway", true, false)
		r = open(t, root, b)
		wrote(t, b, "om_1", "om_2")
		b.answer("om_1", nil)
		r.want("om_1", delivery.Delivered)
	})
}

func TestSettlements(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("gateway", true, false)
		r := open(t, root, b)
		conflict := func(err error) bool { _, ok := errors.AsType[*delivery.ConflictError](err); return ok }

		r.deliver("om_1", "oc_x")
		for range 2 {
			if err := r.settle("om_1", delivery.Delivered); err != nil {
				t.Error(err)
			}
		}
		r.want("om_1", delivery.Delivered)
		if err := r.settle("om_1", delivery.Refused); !conflict(err) {
			t.Errorf("refused after delivered: %v", err)
		}
		if err := r.settle("om_1", delivery.Retry); !conflict(err) {
			t.Errorf("retry after delivered: %v", err)
		}
		if err := r.settle("om_9", delivery.Delivered); !errors.Is(err, delivery.ErrUnknown) {
			t.Errorf("an unknown id: %v", err)
		}

		r.deliver("om_2", "oc_x")
		if err := r.settle("om_2", delivery.Retry); err != nil {
			t.Error(err)
		}
		if err := r.settle("om_2", delivery.Retry); err != nil {
			t.Error(err)
		}
		wrote(t, b, "om_1", "om_2")
		time.Sleep(2 * time.Second)
		wrote(t, b, "om_1", "om_2", "om_2")

		b.answer("om_2", errors.New("answered 500")) // and while it pauses, the bot settles it after all
		synctest.Wait()
		if err := r.settle("om_2", delivery.Delivered); err != nil {
			t.Error(err)
		}
		r.want("om_2", delivery.Delivered)

		b.set(false)
		r.deliver("om_3", "oc_x")
		if err := r.settle("om_3", delivery.Delivered); !errors.Is(err, delivery.ErrUnknown) {
			t.Errorf("a message that was not written yet: %v", err)
		}
	})
}

func TestMail(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		m := message("msg_1", "coder")
		m.Mail = true
		ended := make(chan error, 1)
		next := 0
		attempt := func(r *room) { ended <- r.Attempt(r.ctx, m, b, delivery.Hooks{Next: func() { next++ }}) }
		go attempt(r)
		b.answer("msg_1", delivery.ErrAccepted)
		synctest.Wait()
		if next != 1 || len(r.InProgress()) != 1 {
			t.Errorf("accepted mail: next %d, in progress %v", next, r.InProgress())
		}
		r.stop()
		<-ended

		r = open(t, root, b)
		go attempt(r)
		synctest.Wait()
		wrote(t, b, "msg_1") // before the restart
		time.Sleep(timeout)
		if err := <-ended; !errors.Is(err, delivery.ErrTimedOut) {
			t.Errorf("mail ended with %v", err)
		}
		r.stop()

		if err := r.settle("msg_1", delivery.Delivered); err != nil || len(r.late) != 1 {
			t.Errorf("a late answer: %v, %v", err, r.late)
		}
		onDisk(t, root)

		r = open(t, root, b) // and mail that the bot wants again
		go attempt(r)
		b.answer("msg_1", delivery.ErrAccepted)
		synctest.Wait()
		onDisk(t, root, "msg_1.json")
		if err := r.settle("msg_1", delivery.Retry); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("it counts as delivered")
		}
		onDisk(t, root)
		r.stop()
	})
}

func onDisk(t *testing.T, root *os.Root, want ...string) {
	t.Helper()
	synctest.Wait()
	names, err := safefile.Names(root)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("on disk: %v, want %v", names, want)
	}
}

// Accepted mail of before a restart holds up no other: its hooks are called at once.
func TestAcceptedMailAfterARestart(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		m := message("msg_1", "coder")
		m.Mail = true
		r := open(t, root, b)
		go func() { _ = r.Attempt(r.ctx, m, b, delivery.Hooks{}) }()
		b.answer("msg_1", delivery.ErrAccepted)
		synctest.Wait()
		r.stop()
		r = open(t, root, b)
		called := make(chan string, 2)
		go func() {
			_ = r.Attempt(r.ctx, m, b, delivery.Hooks{Written: func() { called <- "written" }, Next: func() { called <- "next" }})
		}()
		synctest.Wait()
		if len(called) != 2 || len(r.InProgress()) != 1 {
			t.Errorf("%d hooks were called, in progress %v", len(called), r.InProgress())
		}
		r.stop()

		time.Sleep(timeout + time.Second) // its letter is gone
		r = open(t, root, b)
		r.stop()
		onDisk(t, root)
	})
}

// What the bot was given before a restart, and what waited behind it, does not
// expire for the time that this took.
func TestNothingExpiresForARestart(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		m := message("om_1", "oc_x")
		time.Sleep(maxAge - time.Minute)
		go func() { _, _ = r.Deliver(r.ctx, m, r.hooks("om_1")) }()
		wrote(t, b, "om_1")
		time.Sleep(2 * time.Minute)
		r.stop()
		r = open(t, root, b)
		wrote(t, b, "om_1", "om_1")
		if !r.Waited("feishu", "oc_x", m.Sent) || r.Waited("feishu", "oc_y", m.Sent) ||
			r.Waited("feishu", "oc_x", time.Now()) || r.Waited("feishu", "oc_x", m.Sent.Add(-time.Second)) {
			t.Error("what waited behind the message of before the restart is not known")
		}
		behind := message("om_2", "oc_x")
		behind.Sent, behind.Waited = m.Sent, true
		go func() { _, _ = r.Deliver(r.ctx, behind, r.hooks("om_2")) }()
		b.answer("om_1", nil)
		r.want("om_1", delivery.Delivered)
		wrote(t, b, "om_1", "om_1", "om_2")
		b.answer("om_2", nil)
		r.want("om_2", delivery.Delivered)
	})
}

func TestAnAnswerInTheMomentOfTheTimeOutCounts(t *testing.T) {
	for range 50 {
		in(t, func(t *testing.T, root *os.Root) {
			b := newBot("gateway", true, false)
			r := open(t, root, b)
			r.deliver("om_1", "oc_x")
			go func() {
				time.Sleep(timeout)
				r.Acknowledge("om_1")
			}()
			time.Sleep(timeout)
			synctest.Wait()
			if state := r.state("om_1"); state != delivery.Delivered && !slices.Equal(r.late, []string{"om_1 delivered"}) {
				t.Errorf("it is %s", state)
			}
		})
	}
}

// The next message of a chat on a serial channel does not overtake one that the bot
// failed on after a restart.
func TestOrderAfterAnErrorOnASerialChannel(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		r.deliver("om_1", "oc_x")
		time.Sleep(2 * time.Second)
		r.stop()
		r = open(t, root, b)
		wrote(t, b, "om_1", "om_1")
		r.deliver("om_2", "oc_x")
		b.answer("om_1", errors.New("answered 503"))
		time.Sleep(10 * time.Second)
		wrote(t, b, "om_1", "om_1", "om_1")
		b.answer("om_1", nil)
		wrote(t, b, "om_1", "om_1", "om_1", "om_2")
	})
}

// A panic in a hook ends that message, and not its chat.
func TestAPanicInAHook(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("webhook", true, true)
		r := open(t, root, b)
		m := message("om_1", "oc_x")
		go func() {
			defer func() { _ = recover() }()
			_, _ = r.Deliver(r.ctx, m, delivery.Hooks{Ended: func(delivery.Result) { panic("hook") }})
		}()
		synctest.Wait()
		b.answer("om_1", nil)
		r.deliver("om_2", "oc_x")
		wrote(t, b, "om_1", "om_2")
	})
}
