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
	"feishu-relay/group"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/loop"
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

// Input is what the bot gets, as it is in the book.
type Input struct {
	relay.Inbound
	ID   relay.MessageID `json:"relay_msg_id"`
	Key  string          `json:"-"`
	Conn uint64          `json:"-"` // of the channel
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
	if w.list == nil {
		w.list = map[uint64]context.CancelFunc{}
	}
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
		c.writes.begin(c.ctx, f.Try, func(ctx context.Context) { c.write(ctx, f) })
	case deliver.Cancel:
		c.writes.cancel(f.Try)
	case deliver.Respond:
		c.calls.tell(f.Call, f.Err)
	case deliver.Problem:
		c.Watch.Problems(f)
	case deliver.End:
		c.Watch.Ended(f)
	}
}

// write gives the bot one message, and reports what it comes to.
func (c *Core) write(ctx context.Context, f *deliver.Effect) {
	report := func(r deliver.Result, detail string) {
		e := deliver.Event{Kind: deliver.Report, Key: f.Key, Try: f.Try, Result: r, Detail: detail}
		_ = c.loop.Post(c.ctx, loop.Event{Deliver: &e})
	}
	var in Input
	text, err := c.loop.Text(f.Key)
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil { // it was withdrawn meanwhile, or the disk fails
		report(deliver.NotWritten, err.Error())
		return
	}
	in.Key, in.Conn = f.Key, f.Conn
	i := slices.IndexFunc(c.Channels, func(ch Channel) bool { return ch.Name() == f.Channel })
	err = c.Channels[i].Write(ctx, &in, f.Again, func() { report(deliver.Written, "") })
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

// Settle takes in what the bot says of a message that it was given. An error is one of package deliver.
func (c *Core) Settle(ctx context.Context, id relay.MessageID, r deliver.Result, detail string) error {
	return c.call(ctx, func(call string) loop.Event {
		return loop.Event{Deliver: &deliver.Event{Kind: deliver.Settle, Call: call, ID: id, Result: r, Detail: detail}}
	})
}

// Acknowledge is Settle as delivered, without waiting.
func (c *Core) Acknowledge(id relay.MessageID) {
	c.work.Go(func() {
		e := deliver.Event{Kind: deliver.Settle, ID: id, Result: deliver.Delivered}
		_ = c.loop.Post(c.ctx, loop.Event{Deliver: &e})
	})
}

// give has the bot get a message.
func (c *Core) give(of loop.Chat, f *group.Effect) {
	in := c.compose(of, f)
	text, err := relay.Marshal(in)
	if err != nil {
		c.Watch.Problem("inject", err)
	}
	final, now := f.Msg.Final(), relay.MillisOf(time.Now())
	if final <= 0 || final > now {
		final = now
	}
	key := of.Key(f.ID)
	item := deliver.Item{Key: key, ID: in.ID, Chat: of.String(), Sent: final, Bytes: len(text),
		From: f.Msg.SenderAgentName}
	done := group.Event{Kind: group.Done, Key: f.Key}
	for _, id := range in.Shows {
		done.Shows = append(done.Shows, relay.MessageID(id))
	}
	_ = c.loop.Post(c.ctx, loop.Event{Chat: of, Group: &done, TextOf: key, Text: text,
		Deliver: &deliver.Event{Kind: deliver.Take, Item: &item}})
}

// compose is a message as the bot gets it.
func (c *Core) compose(of loop.Chat, f *group.Effect) *Input {
	m, cfg := f.Msg, c.Config(of)
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
	mentions := append([]relay.Mention{}, m.Mentions...) // a list also where there are none
	sent := relay.Millis(c.entry(m).TS)
	meta["from_bot"], meta["is_mentioned"], meta["relay_msg_id"] = true, f.Mentioned, m.RelayMsgID
	meta["group_policy"], meta["mentions"], meta["chat_type"] = cfg.GroupPolicy, mentions, "group"
	meta["sender_agent_name"], meta["depth"], meta["decision"] = m.SenderAgentName, f.Decision.Depth, f.Decision
	in := &Input{ID: m.RelayMsgID, Inbound: relay.Inbound{Source: m, Mentioned: f.Mentioned, Channel: m.Channel,
		Final: m.Final(), ChatID: m.ChatID, Content: m.Content, Metadata: meta,
		SenderID:  cmp.Or(string(m.SenderID), string(m.SenderBotOpenID), string(m.SenderAgentName)),
		Timestamp: relay.Timestamp(sent.Time())}}
	if n := c.Context(of); n > 0 {
		before, ids := c.before(of, m, sent, n)
		in.Content, in.Shows = before+in.Content, ids
	}
	return in
}

// Bounds of INJECT_CONTEXT.
const (
	contextTail    = 200      // how far back lines are looked for
	maxContextLine = 4 << 10  // bytes of a line, whose rest is cut
	maxContext     = 16 << 10 // bytes of all, beyond which the oldest are left out
)

// before is the last n lines before m, which was sent then, that the bot was not given, and their ids.
func (c *Core) before(of loop.Chat, m *relay.Message, sent relay.Millis, n int) (text string, ids []string) {
	entries, err := c.Transcripts.Tail(of.Channel, string(of.ID), contextTail)
	if err != nil {
		c.Watch.Problem("context", err) // the message itself goes on
		return "", nil
	}
	slices.SortStableFunc(entries, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
	c.View(func(s *loop.Core) {
		g := s.Group(of)
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
		lines, ids = append(lines, line), append(ids, e.MessageID)
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
