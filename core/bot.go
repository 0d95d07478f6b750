package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/deliver"
	"feishu-relay/feishu/content"
	"feishu-relay/group"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/loop"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Channel is one path to the bot. Its methods are safe for concurrent use.
type Channel interface {
	Name() string
	Conn() uint64             // the connection on which a write may reach the bot now, another number for each; 0: none
	Changed() <-chan struct{} // closed at the next change of Conn; nil if it never changes
	Present() bool            // the bot is known to be there
	Serial() bool             // the next message of a chat waits for the answer
	Pauses() (first, most time.Duration)
	// Write writes in once, on in.Conn, and returns after the bot's answer: nil, or an error, of which a [ResultError]
	// says what it means; any other means that the bot answered with an error. It calls written once in is written
	// whole. When ctx is done it returns soon.
	Write(ctx context.Context, in *Input, again bool, written func()) error
}

// Resumer is a Channel whose reader gets again what it has not confirmed. Its writes are in the order of their tries.
type Resumer interface {
	// Reader is Conn, the last message that its reader names, "" if none, and whether that confirms those before it.
	Reader() (conn uint64, last relay.MessageID, confirms bool)
}

// Input is what the bot gets.
type Input struct {
	relay.Inbound
	ID   relay.MessageID
	Key  string
	Conn uint64 // of the channel
}

// given is what the bot is to get, as it is in the book.
type given struct {
	Msg       *relay.Message    `json:"msg"`
	Mentioned bool              `json:"mentioned,omitempty"`
	Decision  *policy.Decision  `json:"decision,omitempty"` // nil: a person's
	Before    string            `json:"before,omitempty"`   // earlier messages, in front of the text
	Shows     []relay.MessageID `json:"shows,omitempty"`    // which those are
	ShownAs   relay.MessageID   `json:"shown_as,omitempty"`
	Mail      *relay.Inbound    `json:"mail,omitempty"` // in place of all else
}

// ResultError is the error of a write with this result.
type ResultError struct {
	Result deliver.Result
	Err    error
}

func (e *ResultError) Error() string { return e.Err.Error() }
func (e *ResultError) Unwrap() error { return e.Err }

// watchChannel tells the loop by which connection a channel is open.
func (c *Core) watchChannel(ctx context.Context, ch Channel) {
	for ctx.Err() == nil {
		changed, e := ch.Changed(), deliver.Event{Kind: deliver.Open, Channel: ch.Name(), Conn: ch.Conn()}
		if r, resumes := ch.(Resumer); resumes {
			e.Conn, e.ID, e.Confirms = r.Reader()
		}
		present := slices.ContainsFunc(c.Channels, Channel.Present)
		_ = c.loop.Post(ctx, loop.Event{Deliver: &deliver.Event{Kind: deliver.Presence, Present: present}})
		_ = c.loop.Post(ctx, loop.Event{Deliver: &e})
		_ = wait.Change(ctx, time.Time{}, changed)
	}
}

// writes are those that are under way.
type writes struct {
	running sync.WaitGroup

	mu   sync.Mutex
	list map[uint64]context.CancelFunc // by try; guarded by mu
	over bool                          // none begins any more; guarded by mu
}

// begin has write run, unless none may begin any more: then a restart writes it.
func (w *writes) begin(ctx context.Context, try uint64, write func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.list[try] = cancel
	w.running.Go(func() {
		defer w.cancel(try)
		write(ctx)
	})
}

// cancel ends a write that is still under way.
func (w *writes) cancel(try uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel := w.list[try]; cancel != nil {
		cancel()
	}
	delete(w.list, try)
}

// finish lets no further write begin, and waits at most d for those under way.
func (w *writes) finish(d time.Duration) {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	wait.Group(&w.running, d)
}

func (c *Core) doDeliver(f *deliver.Effect) {
	switch f.Do {
	case deliver.Write:
		write := func(ctx context.Context) { c.write(ctx, f, func() {}) }
		if _, resumes := c.channel(f.Channel).(Resumer); resumes {
			write = c.inTurn(f)
		}
		c.writes.begin(c.ctx, f.Try, write)
	case deliver.Cancel:
		c.writes.cancel(f.Try)
	case deliver.Respond:
		c.calls.tell(f.Call, f.Err)
	case deliver.Problem:
		c.Watch.Problems(f)
	case deliver.End:
		if !c.mailEnded(f) {
			c.Trace("delivered")
			c.Watch.Ended(f)
		}
	}
}

// inTurn writes when what came before is written: a reader that names a message has those of earlier tries.
func (c *Core) inTurn(f *deliver.Effect) func(context.Context) {
	before, next := c.wrote, make(chan struct{})
	c.wrote = next
	return func(ctx context.Context) {
		if before != nil {
			<-before
		}
		wrote := sync.OnceFunc(func() { close(next) })
		c.write(ctx, f, wrote)
		wrote()
	}
}

// write gives the bot one message, and reports what it comes to. It calls written once that is written whole.
func (c *Core) write(ctx context.Context, f *deliver.Effect, written func()) {
	report := func(r deliver.Result, detail string) {
		e := deliver.Event{Kind: deliver.Report, Key: f.Key, Try: f.Try, Result: r, Detail: detail}
		_ = c.loop.Post(c.ctx, loop.Event{Deliver: &e})
	}
	err := c.writeTo(ctx, f, func() { written(); report(deliver.Written, "") })
	switch e, says := errors.AsType[*ResultError](err); {
	case ctx.Err() != nil:
	case err == nil:
		report(deliver.Delivered, "")
	case says:
		report(e.Result, err.Error())
	default:
		report(deliver.Failed, err.Error())
	}
}

func (c *Core) writeTo(ctx context.Context, f *deliver.Effect, written func()) error {
	if m, ok := c.mails.Load(f.Key); ok {
		return m.(*mail).Write(ctx, f.Conn, f.Again, func() { m.(*mail).Written(); written() })
	}
	in, err := c.input(f.Key)
	if err != nil { // it was withdrawn meanwhile, or the disk fails
		return &ResultError{deliver.NotWritten, err}
	}
	in.Conn = f.Conn
	c.Trace("inject")
	return c.channel(f.Channel).Write(ctx, in, f.Again, written)
}

func (c *Core) channel(name string) Channel {
	return c.Channels[slices.IndexFunc(c.Channels, func(ch Channel) bool { return ch.Name() == name })]
}

// input is what the bot gets for an item.
func (c *Core) input(key string) (*Input, error) {
	g, err := c.given(key)
	if err != nil {
		return nil, err
	}
	if g.Mail != nil {
		return &Input{Inbound: *g.Mail, ID: relay.MessageID(g.Mail.Metadata["relay_msg_id"].(string)), Key: key}, nil
	}
	of := loop.Chat{Channel: g.Msg.Channel, ID: g.Msg.ChatID}
	if len(g.Shows) > 0 {
		c.Group(of, func(state *group.State) {
			if slices.ContainsFunc(g.Shows, state.Gone) {
				g.Before = ""
			}
		})
	}
	in := c.compose(of, g)
	in.Key = key
	return in, nil
}

func (c *Core) given(key string) (g *given, err error) {
	text, err := c.loop.Text(key)
	if err == nil {
		err = relay.Unmarshal(text, &g)
	}
	return g, err
}

// Settle takes in what the bot says of a message that it was given. An error is one of package deliver.
func (c *Core) Settle(ctx context.Context, id relay.MessageID, r deliver.Result, detail string) error {
	return c.call(ctx, func(call string) loop.Event {
		return loop.Event{Deliver: &deliver.Event{Kind: deliver.Settle, Call: call, ID: id, Result: r, Detail: detail}}
	})
}

// Acknowledge is Settle as delivered, which is not waited for.
func (c *Core) Acknowledge(id relay.MessageID) {
	c.later.add(loop.Event{Deliver: &deliver.Event{Kind: deliver.Settle, ID: id, Result: deliver.Delivered}})
}

// give has the bot get a message.
func (c *Core) give(of loop.Chat, f *group.Effect) {
	done := group.Event{Kind: group.Done, Key: f.Key}
	if c.Passed(f.ID) {
		c.result(of, done)
		c.result(of, group.Event{Kind: group.Delivered, ID: f.ID, Verdict: &group.Verdict{}})
		return
	}
	g := given{Msg: f.Msg, Mentioned: f.Mentioned, Decision: f.Decision, ShownAs: c.ShownAs(f.Msg)}
	person := f.Msg.Role == relay.RoleUser
	if person {
		names := c.Names(f.Msg)
		g.Mentioned = slices.Contains(names.Bots, c.Agent) || names.All && c.Config(of).MentionAll
	}
	g.Before, g.Shows = c.around(of, f.Msg)
	done.Shows = g.Shows
	now, final := relay.MillisOf(time.Now()), f.Msg.Final()
	if person || final <= 0 || final > now { // a person's message does not expire by the time it was sent
		final = now
	}
	e := taking(of, final, &g)
	e.Chat, e.Group = of, &done
	_ = c.loop.Post(c.ctx, e)
}

// GivePrivate has the bot get a person's message that is not of a group, and returns once it is in the book.
func (c *Core) GivePrivate(ctx context.Context, m *relay.Message) error {
	of := loop.Chat{Channel: m.Channel, ID: m.ChatID}
	return c.loop.Save(ctx, taking(of, relay.MillisOf(time.Now()), &given{Msg: m, ShownAs: m.ID()}))
}

func taking(of loop.Chat, final relay.Millis, g *given) loop.Event {
	key, text := of.Key(g.Msg.ID()), encode(g)
	item := deliver.Item{Key: key, ID: g.Msg.RelayMsgID, Chat: of.String(), Sent: final, Bytes: len(text),
		From: g.Msg.SenderAgentName}
	return loop.Event{TextOf: key, Text: text, Deliver: &deliver.Event{Kind: deliver.Take, Item: &item}}
}

func encode[T *given | string](v T) json.RawMessage {
	text, err := relay.Marshal(v)
	if err != nil {
		panic(err) // these are always JSON
	}
	return text
}

// retext gives a message that waits for the bot the text of an edit.
func (c *Core) retext(of loop.Chat, f *group.Effect) {
	key := of.Key(f.ID)
	g, err := c.given(key)
	if err != nil {
		return // it does not wait, or no more
	}
	m := g.Msg
	m.Content, m.Mentions = f.Text, f.Msg.Mentions
	if m.Metadata == nil { // another program's
		m.Metadata = relay.Metadata{}
	}
	for _, name := range [...]string{"media_keys", relay.MetaFiles} {
		delete(m.Metadata, name)
		if value, ok := f.Msg.Metadata[name]; ok {
			m.Metadata[name] = value
		}
	}
	_ = c.loop.Post(c.ctx, loop.Event{TextOf: key, Text: encode(g)})
}

// compose is a message as the bot gets it.
func (c *Core) compose(of loop.Chat, g *given) *Input {
	m := g.Msg
	meta := make(map[string]any, len(m.Metadata)+12)
	for k, v := range m.Metadata {
		meta[k] = v
	}
	for _, x := range [...]struct{ key, value string }{
		{"message_id", string(m.MessageID)}, {"parent_id", string(m.ParentID)}, {"root_id", string(m.RootID)},
		{"thread_id", m.ThreadID}, {"sender_name", m.SenderName}, {"msg_type", m.MsgType}, {"sender_app_id", m.SenderAppID},
	} {
		if x.value != "" {
			meta[x.key] = x.value
		}
	}
	fromBot := m.Role != relay.RoleUser
	mentions := append([]relay.Mention{}, m.Mentions...) // a list also where there are none
	meta["from_bot"], meta["is_mentioned"], meta["relay_msg_id"] = fromBot, g.Mentioned, m.RelayMsgID
	meta["group_policy"], meta["mentions"] = c.Config(of).GroupPolicy, mentions
	if fromBot {
		meta["sender_agent_name"], meta["chat_type"] = m.SenderAgentName, "group"
	}
	if g.Decision != nil {
		meta["depth"], meta["decision"] = g.Decision.Depth, g.Decision
	}
	return &Input{ID: m.RelayMsgID, Inbound: relay.Inbound{Source: m, Mentioned: g.Mentioned, Channel: m.Channel,
		Final: m.Final(), ChatID: m.ChatID, Content: g.Before + m.Content, Metadata: meta, ShownAs: g.ShownAs,
		SenderID:  cmp.Or(string(m.SenderID), string(m.SenderBotOpenID), string(m.SenderAgentName)),
		Timestamp: relay.Timestamp(relay.Millis(c.entry(m).TS).Time())}}
}

// around is what stands before the text of a message for the bot: with INJECT_CONTEXT earlier lines, and what a bot's
// message answers that says only a name.
func (c *Core) around(of loop.Chat, m *relay.Message) (before string, shows []relay.MessageID) {
	person := m.Role == relay.RoleUser
	if n := c.Context(of); n > 0 && (!person || content.IsText(m.MsgType)) {
		before, shows = c.before(of, m, relay.Millis(c.entry(m).TS), n)
	}
	if person || m.ParentID == "" || !c.Bare(m.Content) {
		return before, shows
	}
	for _, e := range c.tail(of) {
		if e.MessageID == string(m.ParentID) && !e.Recalled {
			before += "> " + oneLine(cmp.Or(e.SenderName, e.Sender)) + ": " + oneLine(e.Content) + "\n"
			return before, append(shows, m.ParentID)
		}
	}
	return before, shows
}

// tail is the newest lines of a chat's transcript, by time.
func (c *Core) tail(of loop.Chat) []transcript.Entry {
	entries, err := c.Transcripts.Tail(of.Channel, string(of.ID), contextTail)
	if err != nil {
		c.Watch.Problem("context", err) // the message itself goes on
	}
	slices.SortStableFunc(entries, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
	return entries
}

// Bounds of INJECT_CONTEXT.
const (
	contextTail    = 200      // how far back lines are looked for
	maxContextLine = 4 << 10  // bytes of a line, whose rest is cut
	maxContext     = 16 << 10 // bytes of all, beyond which the oldest are left out
)

// before is the last n lines before m, which was sent then, that the bot was not given, and their ids.
func (c *Core) before(of loop.Chat, m *relay.Message, sent relay.Millis, n int) (text string, ids []relay.MessageID) {
	entries := c.tail(of)
	c.Group(of, func(g *group.State) {
		has := func(l *group.Line) bool { // or is being given it
			return l != nil && slices.ContainsFunc(l.Verdicts, func(v group.Verdict) bool {
				return v.Agent == c.Agent && (v.Delivered > 0 || v.Decision != nil && v.Decision.Allow && v.Stopped == "")
			})
		}
		entries = slices.DeleteFunc(entries, func(e transcript.Entry) bool {
			l := g.Line(relay.MessageID(e.MessageID))
			return has(l) || l != nil && has(g.Line(l.ShownWith))
		})
	})
	var lines []string // the newest first
	size := 0
	for _, e := range slices.Backward(entries) {
		if len(lines) == n {
			break
		}
		if e.MessageID == string(m.ID()) || e.TS > int64(sent) || e.ThreadID != m.ThreadID ||
			e.Sender == string(c.Agent) || e.Recalled {
			continue
		}
		line := oneLine(cmp.Or(e.SenderName, e.Sender)) + ": " + oneLine(e.Content) + "\n"
		if size += len(line); size > maxContext {
			break
		}
		lines, ids = append(lines, line), append(ids, relay.MessageID(e.MessageID))
	}
	if len(lines) == 0 {
		return "", nil
	}
	slices.Reverse(lines)
	return fmt.Sprintf("[context: %d earlier messages of this group, not addressed to you]\n", len(lines)) +
		strings.Join(lines, "") + relay.ContextEnd, ids
}

// oneLine keeps a text, or a name that anybody can choose, from ending its line and with it the context.
func oneLine(text string) string {
	return runes.Short(strings.Join(strings.Fields(text), " "), maxContextLine)
}
