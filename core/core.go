// Package core is a sidecar without its servers: what it hears from the bot, from Feishu and from the lanes becomes
// events of package loop, and its workers do what follows from them.
//
// # The way of a message
//
// Of the bot: Say, Said, Append and Publish. Of another bot: lane, Arrived, the stages of package group, Deliver, the
// text as the bot gets it, Take, Write, the channel, Report, End. Of a person: Hear or HearEvent, Heard, Give or
// Withhold. Of a bot, from Feishu itself: HearNative, Native, and Fetch if no other sidecar brings it.
package core

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

	Self     func() Self                          // who the bot is, as far as is known
	Config   func(loop.Chat) *group.Config        // what the sidecar is set to in a chat
	Member   func(loop.Chat) (member, known bool) // whether the bot is in a chat, as the operator says
	Revision func() any                           // of what Config and Member say
	Checked  func() bool                          // membership is checked
	Asks     func(loop.Chat) bool                 // Feishu knows whether the bot is in a chat, and can be asked
	Names    func(*relay.Message) group.Names     // whom a message names
	Context  func(loop.Chat) int                  // INJECT_CONTEXT
	Resolve  func(relay.Outbound) []relay.Mention // who is mentioned in what the bot says
	// MayEdit reports whether the sender of a command, who has a union_id or "", may change settings.
	MayEdit func(ctx context.Context, m *relay.Message, union string) bool
	BotOf   func(relay.OpenID) (agent relay.AgentName, is bool) // the bot that an id is known to be
	Passed  func(relay.MessageID) bool                          // the bot has it from Feishu, though it was to wait
	ShownAs func(*relay.Message) relay.MessageID                // its id for a bot behind the gateway
	Bare    func(text string) bool                              // it says nothing but names
	Foreign func(relay.AgentName) error                         // why a sender signs otherwise; nil: not known

	Bots, People, Side relay.Backend
	Transcripts        *transcript.Store
	Judge              func() (limits policy.Limits, judge policy.Judge) // of a group, beside what its settings say
	Channels           []Channel                                         // to the bot; the first open one is used
	Feishu             Feishu                                            // nil: there is none
	GivesPeople        bool                                              // people's messages reach the bot by a channel
	Watch              Watch
	Noted              func(key string, value json.RawMessage) // is given each note by Open
	Trace              func(step string)                       // for tests
	Logger             *slog.Logger
}

// Self is the bot.
type Self struct {
	Name   string
	OpenID relay.OpenID
	AppID  string
}

// Stop is a message that does not reach the bot.
type Stop struct {
	Msg       *relay.Message // of one that is not known here, its chat and id
	Reason    relay.Reason
	Detail    string           // behind the reason; may be ""
	Decision  *policy.Decision // nil: there is none
	Mentioned bool
}

// Watch is told what happens, for logs, metrics and watchers. Its methods return soon.
type Watch interface {
	Problem(part string, err error)
	Retried(part string)
	Read(lane string)
	Malformed(line []byte, err error)
	Arrived(lane string, d *relay.Delivery, m *relay.Message)
	Recorded(m *relay.Message, e transcript.Entry, depth int, added bool)
	Said(m *relay.Message)
	Decided(m *relay.Message, d policy.Decision, mentioned bool)
	Stopped(s Stop)
	Took(of loop.Chat, r *group.Record) // each record, of this sidecar and of others
	Told(of loop.Chat, r *group.Record) // each command, notice and verdict that is new here
	Recalled(of loop.Chat, id relay.MessageID)
	Missed(m *relay.Message) // a bot's message came from Feishu, and its sidecar did not bring it
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
	texts   texts
	writes  writes
	heard   waiting[relay.Reason] // by message: who reported it waits for what becomes of it
	passing waiting[Passage]      // by message: the gateway waits for it
	calls   waiting[error]        // by Call
	mails   sync.Map              // by key: of GiveMail, *mail
	wrote   chan struct{}         // closed when the newest write of a Resumer is written; of the loop
	later   line[loop.Event]      // events that nobody waits for
	goesOn  atomic.Bool           // what an earlier process left has begun again; for Trace
	members sync.Map              // loop.Chat to bool: what was said of it to the loop
	set     struct {              // what the loop was told of Config and Member
		sync.Mutex
		revision any
	}
}

// Open reads the book, and starts no goroutine. Run or Close has to follow.
func Open(o Options) (*Core, error) {
	c := &Core{Options: o, own: string(o.Agent) + "/" + time.Now().Format(time.RFC3339Nano)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.texts.list, c.writes.list = map[string][]loop.Effect{}, map[uint64]context.CancelFunc{}
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
		Noted: c.noted,
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
	for _, l := range c.lanes {
		c.work.Go(func() { c.publish(l) })
	}
	c.work.Go(c.postLater)
	looping.Go(func() { err = c.loop.Run(inLoop) })
	for _, ch := range c.Channels {
		reading.Go(func() { c.watchChannel(ctx, ch) })
	}
	c.readLanes(ctx, &reading)
	<-ctx.Done()
	reading.Wait()
	c.writes.finish(answers)
	c.drain(publishing)
	c.View(func(*loop.Core) { c.stop() }) // between two batches, so that do begins nothing while work is waited for
	c.writes.running.Wait()
	c.work.Wait()
	stopLoop()
	looping.Wait()
	return err
}

// View calls see with the state, which is only to be read.
func (c *Core) View(see func(*loop.Core)) { _ = c.loop.View(c.ctx, see) }

// Group calls see with what is known of a chat, which is only to be read, unless nothing is.
func (c *Core) Group(of loop.Chat, see func(*group.State)) {
	c.View(func(s *loop.Core) {
		if g := s.Group(of); g != nil {
			see(g)
		}
	})
}

// Lane is the state of a lane.
func (c *Core) Lane(name string) (st LaneStatus) {
	i := slices.IndexFunc(c.lanes[:], func(l *lane) bool { return l.name == name })
	c.lanes[i].change(func(now *LaneStatus) {
		if st = *now; st.Pending > 0 {
			st.Stalled = time.Since(st.since)
		}
	})
	return st
}

// In reports whether messages of a chat may reach the bot and its transcript.
func (c *Core) In(of loop.Chat) (in bool) {
	if !c.Checked() {
		return true
	}
	if member, known := c.Member(of); known && member {
		return true
	}
	c.Group(of, func(g *group.State) { in = g.In() })
	return in
}

// Joined and Left take in whether the bot was in a chat at a time, 0 for now. The newest counts.
func (c *Core) Joined(of loop.Chat, at relay.Millis) {
	c.result(of, group.Event{Kind: group.Joined, TS: at})
}

// Left is described there.
func (c *Core) Left(of loop.Chat, at relay.Millis) {
	c.result(of, group.Event{Kind: group.Left, TS: at})
}

// Recall takes in that a message of a group was recalled.
func (c *Core) Recall(ctx context.Context, of loop.Chat, id relay.MessageID) error {
	return c.loop.Post(ctx, loop.Event{Chat: of, Group: &group.Event{Kind: group.Recalled, ID: id}})
}

// Online takes in which agents are online, and whether the bot is away.
func (c *Core) Online(ctx context.Context, agents []relay.AgentName, away bool) {
	_ = c.loop.Post(ctx, loop.Event{Group: &group.Event{Kind: group.Online, Agents: agents, Away: away}})
}

// Note stores a value in the book soon; nil deletes it. It does not wait.
func (c *Core) Note(key string, value json.RawMessage) {
	c.later.add(loop.Event{Note: key, Value: value})
}

// postLater posts what nobody waits for until the workers end.
func (c *Core) postLater() {
	for batch := c.later.peek(c.ctx, maxOffered); batch != nil; batch = c.later.peek(c.ctx, maxOffered) {
		for _, e := range batch {
			_ = c.loop.Post(c.ctx, e)
		}
		c.later.drop(len(batch))
	}
}

// member makes sure that the loop knows whether the bot is in a chat, before something of that chat; saw: it is.
func (c *Core) member(ctx context.Context, of loop.Chat, saw bool) {
	c.Configured(ctx)
	is, known := c.Member(of)
	if c.Asks(of) && !(known && is) {
		return
	}
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
		c.Group(of, func(*group.State) { there = true })
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
