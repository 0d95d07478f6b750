// Package core is a sidecar without Feishu and mail: what it hears from the bot and from the lanes becomes events of
// package loop, and its workers do what follows from them.
//
// # The way of a message
//
// Of the bot: Say, Said, Append and Publish. Of another bot: lane, Arrived, the stages of package group, Deliver, the
// text as the bot gets it, Take, Write, the channel, Report, End. Of a person: Hear, Heard, Give or Withhold.
package core

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/deliver"
	"feishu-relay/group"
	"feishu-relay/loop"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Options of a core. All are required but those that say what holds without them.
type Options struct {
	Agent   relay.AgentName
	Role    string        // what the bot is for; may be empty
	Dir     string        // of the book
	Sync    bool          // RELAY_FSYNC
	Secret  string        // RELAY_SECRET; "": lines are not signed
	MaxAge  time.Duration // RELAY_MAX_AGE
	Timeout time.Duration // DELIVERY_TIMEOUT
	Dedup   int           // edits that are remembered

	Self     func() Self                                // who the bot is, as far as is known
	Config   func(loop.Chat) *group.Config              // what the sidecar is set to in a chat
	Member   func(loop.Chat) (member, known bool)       // whether the bot is in a chat, as the operator says
	Revision func() any                                 // of what Config and Member say
	Checked  func() bool                                // membership is checked
	Names    func(*relay.Message) group.Names           // whom a message names
	Context  func(loop.Chat) int                        // INJECT_CONTEXT
	Resolve  func(relay.Outbound) []relay.Mention       // who is mentioned in what the bot says
	MayEdit  func(context.Context, *relay.Message) bool // the sender may change settings
	Foreign  func(relay.AgentName) error                // why a sender's signature may be another one; nil: not known

	Bots, People, Side relay.Backend
	Transcripts        *transcript.Store
	Judge              func() (limits policy.Limits, judge policy.Judge) // of a group, beside what its settings say
	Channels           []Channel                                         // to the bot; the first open one is used
	Watch              Watch
	Logger             *slog.Logger
}

// Self is the bot.
type Self struct {
	Name   string
	OpenID relay.OpenID
	AppID  string
}

// Watch is told what happens, for logs, metrics and watchers. Its methods return soon.
type Watch interface {
	Problem(part string, err error)
	Retried(part string)
	Read(lane string)
	Malformed(line []byte, err error)
	Arrived(lane string, d *relay.Delivery, m *relay.Message)
	Recorded(m *relay.Message, e transcript.Entry, added bool)
	Said(m *relay.Message)
	Decided(m *relay.Message, d policy.Decision)
	Stopped(m *relay.Message, why relay.Reason, d *policy.Decision)
	Shared(of loop.Chat, r *group.Record)
	Ended(f *deliver.Effect)
	Problems(f *deliver.Effect)
}

// Core is one sidecar. Its methods are safe for concurrent use.
type Core struct {
	Options
	ctx  context.Context // of the workers
	stop context.CancelFunc
	work sync.WaitGroup // the workers
	loop *loop.Loop
	own  string // of this process, for claims

	lanes   [3]*lane
	edits   *dedup.Window     // ids of edits that came
	texts   line[loop.Effect] // to transcripts, and behind them to the bot, in order
	writes  writes
	heard   waiting[relay.Reason] // by message: who reported it waits for what becomes of it
	calls   waiting[error]        // by Call
	members sync.Map              // loop.Chat to bool: what was said of it to the loop
	set     struct {              // what the loop was told of Config and Member
		sync.Mutex
		revision any
	}
}

// Open reads the book, and starts no goroutine. Run or Close has to follow.
func Open(o Options) (*Core, error) {
	c := &Core{Options: o, edits: dedup.Memory(o.Dedup), own: string(o.Agent) + "/" + time.Now().Format(time.RFC3339Nano)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	for i, q := range []relay.Backend{o.Bots, o.People, o.Side} {
		c.lanes[i] = &lane{name: []string{Outbound, Inbound, Side}[i], queue: q}
	}
	c.set.revision = o.Revision()
	cfg := deliver.Config{MaxAge: o.MaxAge, Timeout: o.Timeout}
	for _, ch := range o.Channels {
		first, most := ch.Pauses()
		cfg.Channels = append(cfg.Channels, deliver.Channel{Name: ch.Name(), Serial: ch.Serial(), First: first, Most: most})
	}
	var err error
	c.loop, err = loop.Open(loop.Options{Dir: o.Dir, Sync: o.Sync, Config: o.Config, Do: c.do, Deliver: cfg,
		Failed: func(err error) {
			o.Watch.Problem("book", err)
			o.Logger.Error("the disk refuses what happened; it is tried again", "err", err)
		}, Logger: o.Logger})
	return c, err
}

// Close closes the book of a core that does not run.
func (c *Core) Close() error { return c.loop.Close() }

// Run works until ctx is done, then until the bot has answered what it was given, or for answers, and then until the
// lanes have published all, or for publishing.
func (c *Core) Run(ctx context.Context, answers, publishing time.Duration) error {
	inLoop, stopLoop := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoop()
	var reading, looping sync.WaitGroup
	var err error
	c.work.Go(c.writeTexts)
	for _, l := range c.lanes {
		c.work.Go(func() { c.publish(l) })
	}
	looping.Go(func() { err = c.loop.Run(inLoop) })
	for _, ch := range c.Channels {
		reading.Go(func() { c.watchChannel(ctx, ch) })
	}
	c.readLanes(ctx, &reading)
	<-ctx.Done()
	reading.Wait()
	c.writes.finish(answers)
	c.drain(publishing)
	c.stop()
	c.writes.running.Wait()
	c.work.Wait()
	stopLoop()
	looping.Wait()
	return err
}

// View calls see with the state, which is only to be read.
func (c *Core) View(see func(*loop.Core)) { _ = c.loop.View(c.ctx, see) }

// Lane is the state of a lane: how many lines wait to be published.
func (c *Core) Lane(name string) (pending int) {
	i := slices.IndexFunc(c.lanes[:], func(l *lane) bool { return l.name == name })
	return c.lanes[i].out.size()
}

// In reports whether messages of a chat may reach the bot and its transcript.
func (c *Core) In(of loop.Chat) bool {
	if !c.Checked() {
		return true
	}
	if is, told := c.members.Load(of); told {
		return is.(bool)
	}
	member, known := c.Member(of)
	return known && member
}

// member makes sure that the loop knows whether the bot is in a chat, before something of that chat; saw: it is.
func (c *Core) member(ctx context.Context, of loop.Chat, saw bool) {
	c.Configured(ctx)
	is, known := c.Member(of)
	is = saw || known && is
	if was, told := c.members.Load(of); told && (was == is || was.(bool) && !known) {
		return
	}
	switch {
	case is:
	case !c.Checked():
		return
	case !known:
		var there bool
		c.View(func(s *loop.Core) { there = s.Group(of) != nil })
		if there { // an earlier process knew better
			c.members.Store(of, true)
			return
		}
	}
	c.tell(ctx, of, is)
}

// tell has the loop know whether the bot is in a chat.
func (c *Core) tell(ctx context.Context, of loop.Chat, member bool) {
	kind := group.Left
	if member {
		kind = group.Joined
	}
	if c.loop.Post(ctx, loop.Event{Chat: of, Group: &group.Event{Kind: kind}}) == nil {
		c.members.Store(of, member)
	}
}

// Configured has the chats know what they are set to, if that has changed.
func (c *Core) Configured(ctx context.Context) {
	c.set.Lock()
	defer c.set.Unlock()
	now := c.Revision()
	if c.set.revision == now {
		return
	}
	c.set.revision = now
	var chats []loop.Chat
	c.View(func(s *loop.Core) { chats = s.Chats() })
	for _, of := range chats {
		_ = c.loop.Post(ctx, loop.Event{Chat: of, Group: &group.Event{Kind: group.Configure, Config: c.Config(of)}})
		if member, known := c.Member(of); known {
			c.tell(ctx, of, member)
		}
	}
}
