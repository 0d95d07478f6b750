package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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
	late    []string
}

func open(t *testing.T, root *os.Root, channels ...delivery.Channel) *room {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &room{t: t, ctx: ctx, done: make(chan struct{}), results: map[relay.MessageID]delivery.Result{}}
	d, err := delivery.New(delivery.Options{Root: root, MaxAge: maxAge, Timeout: timeout,
		Resumed: func(m *delivery.Message) delivery.Hooks { return r.hooks(m.ID) }, Failed: func(delivery.Ref, error) {},
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

// What a bot has and does not answer is bounded in bytes, in all chats together. The rest waits for room, and its age
// does not expire it meanwhile.
func TestWhatIsInProgressIsBounded(t *testing.T) {
	in(t, func(t *testing.T, root *os.Root) {
		b := newBot("gateway", true, false)
		r := open(t, root, b)
		const count, size, bound = 60, 900_000, 16 << 20
		var all []relay.MessageID
		for i := range count {
			id := relay.MessageID(fmt.Sprint("om_", i))
			m := message(id, relay.ChatID(fmt.Sprint("oc_", i%7)))
			m.Content = strings.Repeat("x", size)
			all = append(all, id)
			r.delivering.Go(func() { _, _ = r.Deliver(r.ctx, m, r.hooks(id)) })
			synctest.Wait()
		}
		small := relay.MessageID("om_small")
		r.deliver(small, "oc_small") // it fits beside them
		b.answer(small, nil)
		r.want(small, delivery.Delivered)
		for answered := 0; answered < count; {
			time.Sleep(maxAge - time.Minute)
			has := slices.DeleteFunc(b.written(), func(id string) bool { return id == string(small) })[answered:]
			if n := len(has); n*size > bound || n < min(count-answered, bound/size) {
				t.Fatalf("%d bytes are in progress", n*size)
			}
			for _, id := range has {
				b.answer(relay.MessageID(id), nil)
				answered++
			}
			synctest.Wait()
		}
		for _, id := range all {
			r.want(id, delivery.Delivered)
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
		if err := errors.Join(r.settle("om_2", delivery.Retry), r.settle("om_2", delivery.Retry)); err != nil {
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
