package agent_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// world is some agents that share a store, in a bubble of synctest.
type world struct {
	t   *testing.T
	hub *hub
	dir string
}

// in runs a test in a bubble, where time stands still while anybody works.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &world{t: t, hub: newHub(), dir: t.TempDir()})
	})
}

// actor is an agent with its bot, over restarts.
type actor struct {
	*agent.Agent
	w    *world
	id   mailbox.AgentID
	door *door
	opts agent.Options
	root *os.Root
	dead atomic.Bool // it crashed

	cursor string // of the last drain

	mu      sync.Mutex
	events  []agent.Event // guarded by mu
	crashAt string        // guarded by mu: the step of Trace
	steps   map[string]bool

	cancel context.CancelFunc
	done   chan struct{}
}

// agent starts an agent whose bot's door is open.
func (w *world) agent(id mailbox.AgentID, change ...func(*agent.Options)) *actor {
	w.t.Helper()
	a := w.idle(id, change...)
	a.door.set(true)
	a.start()
	synctest.Wait()
	return a
}

// idle makes an agent that does not run, and whose bot has no door.
func (w *world) idle(id mailbox.AgentID, change ...func(*agent.Options)) *actor {
	w.t.Helper()
	a := &actor{w: w, id: id, door: newDoor(), steps: map[string]bool{}}
	a.opts = agent.Options{Self: id, MaxTasks: 3, Channels: a.door,
		Hears:     func(string, string) bool { return false },
		Heartbeat: 30 * time.Second, HeartbeatTimeout: 90 * time.Second, AckTimeout: 30 * time.Second,
		RetryBase: time.Second, MaxRetries: 3, DeliveryTimeout: 15 * time.Minute, MaxAge: 10 * time.Minute,
		Trace: a.traced, Failed: func(string, error) {}, Observe: a.observe}
	for _, c := range change {
		c(&a.opts)
	}
	a.open()
	w.t.Cleanup(a.stop)
	return a
}

func (a *actor) open() {
	t := a.w.t
	t.Helper()
	dir := filepath.Join(a.w.dir, string(a.id))
	must(t, os.MkdirAll(dir, 0o700))
	var err error
	a.root, err = os.OpenRoot(dir)
	must(t, err)
	a.dead.Store(false)
	a.opts.State, a.opts.Store = a.root, &handle{hub: a.w.hub, dead: &a.dead}
	a.opts.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("agent", a.id)
	a.Agent, err = agent.New(a.opts)
	must(t, err)
}

// logTo has what is logged written to out; the agent does not run yet.
func (a *actor) logTo(out io.Writer) {
	a.opts.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	must(a.w.t, a.Agent.Close())
	var err error
	a.Agent, err = agent.New(a.opts)
	must(a.w.t, err)
}

func (a *actor) start() {
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.done = cancel, make(chan struct{})
	run, done := a.Agent, a.done
	go func() {
		defer close(done)
		run.Run(ctx)
	}()
}

// stop ends the process, so to say.
func (a *actor) stop() {
	if a.cancel != nil {
		a.cancel()
		<-a.done
		a.cancel = nil
	}
	if a.root != nil {
		_ = a.Agent.Close()
		_ = a.root.Close()
		a.root = nil
	}
}

// restart begins anew with what the disk holds.
func (a *actor) restart() {
	a.stop()
	a.open()
	a.start()
	synctest.Wait()
}

// crashes has the process die when it comes to a step.
func (a *actor) crashes(step string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.crashAt = step
}

func (a *actor) traced(step string) {
	a.mu.Lock()
	a.steps[step] = true
	now := a.crashAt == step
	if now {
		a.crashAt = ""
	}
	a.mu.Unlock()
	if now {
		a.dead.Store(true)
		if a.cancel != nil {
			a.cancel()
		}
		runtime.Goexit()
	}
}

func (a *actor) observe(e agent.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

// saw counts the events of a kind.
func (a *actor) saw(what agent.What) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if e.What == what {
			n++
		}
	}
	return n
}

// texts waits until nobody has anything to do, and returns what the bot was
// given since the last call.
func (a *actor) texts() []string {
	synctest.Wait()
	out := []string{}
	for _, d := range a.door.taken() {
		out = append(out, d.Text())
	}
	return out
}

func (a *actor) deliveries() []agent.Delivery {
	synctest.Wait()
	return a.door.taken()
}

// say sends a message.
func (a *actor) say(to *actor, text string, change ...func(*mailbox.Envelope)) agent.Sent {
	a.w.t.Helper()
	sent, err := a.Send(a.w.t.Context(), agent.Draft{Envelope: letterTo(to.id, text, change...)})
	must(a.w.t, err)
	return sent
}

func letterTo(to mailbox.AgentID, text string, change ...func(*mailbox.Envelope)) mailbox.Envelope {
	e := mailbox.Envelope{To: to, Hops: 3, Content: textOf(text)}
	for _, c := range change {
		c(&e)
	}
	return e
}

func textOf(text string) mailbox.Content {
	return mailbox.Content{Parts: []mailbox.Part{{Type: mailbox.PartText, Text: text}}}
}

// SendTask gives a task to another agent.
func (a *actor) SendTask(ctx context.Context, d agent.TaskDraft) (agent.Sent, error) {
	e := letterTo(d.To, d.Text)
	e.Type, e.Priority, e.Callback = mailbox.TypeTask, d.Priority, d.Callback
	e.Task = &mailbox.Task{ID: d.TaskID, Deadline: d.Deadline}
	if d.Text == "" {
		e.Content.Parts = nil
	}
	e.Content.Parts = append(e.Content.Parts, d.Data...)
	return a.Send(ctx, agent.Draft{Envelope: e, ForwardOf: d.ForwardOf})
}

// task gives a task; change may be nil.
func (a *actor) task(to *actor, id string, change func(*agent.TaskDraft)) agent.Sent {
	a.w.t.Helper()
	d := agent.TaskDraft{To: to.id, Text: "do " + id, TaskID: id}
	if change != nil {
		change(&d)
	}
	sent, err := a.SendTask(a.w.t.Context(), d)
	must(a.w.t, err)
	return sent
}

func (a *actor) update(id string, state mailbox.TaskState, text string) {
	a.w.t.Helper()
	_, err := a.UpdateTask(a.w.t.Context(), agent.TaskUpdate{TaskID: id, State: state, Text: text})
	must(a.w.t, err)
}

// state of the only task of that id.
func (a *actor) state(id string) mailbox.TaskState {
	a.w.t.Helper()
	synctest.Wait()
	list := a.Task(id)
	if len(list) != 1 {
		a.w.t.Fatalf("%s knows %d tasks %s", a.id, len(list), id)
	}
	return list[0].State
}

// foreign lays an envelope of another make into an inbox.
func (w *world) foreign(to *actor, e mailbox.Envelope) string {
	w.t.Helper()
	if e.ID == "" {
		e.ID = mailbox.NewID(e.From, time.Now())
	}
	if e.Timestamp.IsZero() {
		e.Timestamp = time.Now()
	}
	if e.Type == "" {
		e.Type = mailbox.TypeMessage
	}
	if e.Priority == 0 {
		e.Priority = e.Type.DefaultPriority()
	}
	if e.To == "" {
		e.To = to.id
	}
	if e.Trace == nil {
		e.Trace = []mailbox.AgentID{e.From}
	}
	raw, err := mailbox.Encode(e)
	must(w.t, err)
	return w.hub.put(to.id, raw)
}

// mailOf are the envelopes of a type that wait for an agent that does not run.
func (w *world) mailOf(id mailbox.AgentID, typ mailbox.Type) (all []mailbox.Envelope) {
	synctest.Wait()
	for _, item := range w.hub.waiting(id) {
		if e, err := mailbox.Decode(item.Raw); err == nil && e.Type == typ {
			all = append(all, e)
		}
	}
	return all
}

// door is how a bot gets its mail.
type door struct {
	mu      sync.Mutex
	open    bool
	changed chan struct{}
	list    []agent.Delivery
	// does decides about a delivery, instead of the door's being open.
	does   func(context.Context, agent.Delivery) error
	slow   bool // the bot takes its time to answer
	serial bool // and its other mail of the conversation waits for that
}

func newDoor() *door { return &door{changed: make(chan struct{})} }

func (d *door) set(open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = open
	if open {
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

func (d *door) doing(does func(context.Context, agent.Delivery) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.does = does
}

func (d *door) Deliver(ctx context.Context, m agent.Delivery, on agent.Progress) error {
	d.mu.Lock()
	does, open, slow, serial := d.does, d.open, d.slow, d.serial
	d.mu.Unlock()
	if slow {
		on.Written()
		if !serial {
			on.Next()
		}
	}
	if does != nil {
		if err := does(ctx, m); err != nil {
			return err
		}
	} else if !open {
		return agent.ErrNoChannel
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, m)
	return nil
}

func (d *door) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

func (d *door) taken() []agent.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// refusedAs checks that err is a refusal with that code and those words.
func refusedAs(t *testing.T, err error, code mailbox.Code, words string) {
	t.Helper()
	no, ok := errors.AsType[*mailbox.Error](err)
	if !ok || no.Code != code || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %s with %q", err, code, words)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
