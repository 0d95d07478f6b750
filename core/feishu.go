package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/group"
	"feishu-relay/internal/wait"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// Feishu is what the core asks Feishu, and the bot's gateway, to do. Its methods may take a while, and are safe for
// concurrent use.
type Feishu interface {
	// Member reports whether the bot is in a chat; after an error it is asked again.
	Member(ctx context.Context, chat relay.ChatID) (bool, error)
	// Fetch is another bot's message as Feishu has it now; why: it is not for the bot.
	Fetch(ctx context.Context, m *relay.Message) (now *relay.Message, why relay.Reason)
	// Complete is a person's message with the sender's name, and with its text where the event had none; nil: it has
	// none.
	Complete(ctx context.Context, m *relay.Message) *relay.Message
	React(ctx context.Context, to relay.MessageID) error
	// Reply shows a text once for a key.
	Reply(ctx context.Context, to relay.MessageID, text, key string) (relay.MessageID, error)
	// Give gives the bot the event of a person's message, with a text in front, and returns once it is written.
	Give(ctx context.Context, event json.RawMessage, before string, until time.Time) error
}

// Passage is how a person's message goes on to the bot.
type Passage struct {
	Reason relay.Reason // why it does not; Pass: it does
	Held   bool         // it may be given to the bot later
	Before string       // what stands before its text
}

// HearEvent takes a person's message that Feishu delivered, with its event, and says how it goes on to the bot. With
// GivesPeople it returns once the message is in the book.
func (c *Core) HearEvent(ctx context.Context, h Hearing, event json.RawMessage) (Passage, error) {
	of := ChatOf(h.Msg.Channel, h.Msg.ChatID)
	e := c.heardEvent(ctx, of, h)
	if c.GivesPeople {
		return Passage{}, c.loop.Save(ctx, loop.Event{Chat: of, Group: &e})
	}
	got, forget := c.passing.wait(of.Key(h.Msg.ID()))
	defer forget()
	note := eventNote(of, h.Msg.ID())
	if err := c.loop.Save(ctx, loop.Event{Chat: of, Group: &e, Note: note, Value: event}); err != nil {
		return Passage{}, err
	}
	select {
	case p := <-got:
		return p, nil
	case <-ctx.Done():
		return Passage{}, context.Cause(ctx)
	}
}

// eventNote is the key of the event of a person's message that may be given to the bot later.
func eventNote(of loop.Chat, id relay.MessageID) string { return "event/" + of.Key(id) }

// Hearing is a message that was heard as a person's.
type Hearing struct {
	Msg   *relay.Message
	Type  string // of the sender, as Feishu says it: only a user commands
	Union string // the sender's union_id; may be ""
}

// heardEvent is the event of what was heard.
func (c *Core) heardEvent(ctx context.Context, of loop.Chat, h Hearing) group.Event {
	m := h.Msg
	if agent, is := c.BotOf(m.SenderID); is {
		m.Role, m.SenderAgentName, m.SenderBotOpenID = relay.RoleAssistant, agent, m.SenderID
	}
	e := group.Event{Kind: group.Heard, At: time.Now(), Msg: m, Names: c.Names(m),
		User: cmp.Or(h.Type, feishu.SenderUser) == feishu.SenderUser && m.Role != relay.RoleAssistant}
	if e.User && c.Steers(ctx, of, m) != relay.Pass {
		e.MayEdit = c.MayEdit(ctx, m, h.Union)
	}
	return e
}

// Steers is Command or Continue if a person's message steers its group, else Pass. When ctx is done, a command is still
// known by its text.
func (c *Core) Steers(ctx context.Context, of loop.Chat, m *relay.Message) (why relay.Reason) {
	asks := func(s *loop.Core) { why = c.stateOf(s, of, time.Now()).Asks(m) }
	if c.loop.View(ctx, asks) != nil {
		asks(loop.NewCore(c.Config))
	}
	return why
}

// HearNative takes another bot's message that Feishu delivered, and returns once it is in the book. It waits until then
// for the copy that the bot's own sidecar sends.
func (c *Core) HearNative(ctx context.Context, m *relay.Message, until time.Time) error {
	return c.loop.Save(ctx, loop.Event{Chat: ChatOf(m.Channel, m.ChatID), Group: &group.Event{Kind: group.Native, Msg: m,
		Names: c.Names(m), Until: relay.MillisOf(until)}})
}

// Reacted reports whether a reaction to a message shows a stop.
func (c *Core) Reacted(id relay.MessageID) (is bool) {
	c.View(func(s *loop.Core) {
		for _, of := range s.Chats() {
			is = is || of.Channel == relay.DefaultChannel && s.Group(of).Reacted(id)
		}
	})
	return is
}

// pass has the bot get a person's message.
func (c *Core) pass(of loop.Chat, f *group.Effect) {
	key, done := of.Key(f.ID), group.Event{Kind: group.Done, Key: f.Key, Verdict: &group.Verdict{}}
	note, before := eventNote(of, f.ID), ""
	event := c.loop.Note(note)
	switch {
	case f.Key == "":
	case f.Until > 0 && event != nil && !c.Passed(f.ID): // it was held
		done.Verdict.Door = "gateway"
		before, done.Shows = c.around(of, f.Msg)
		if err := c.Feishu.Give(c.ctx, event, before, f.Until.Time()); err != nil {
			c.Watch.Problem("gateway", err)
			done = group.Event{Kind: group.Done, Key: f.Key, Failed: true}
		}
	case c.passing.any(key):
		done.Verdict.Door = "gateway"
		before, done.Shows = c.around(of, f.Msg)
	case f.Until > 0 && !c.heard.any(key) && !c.Passed(f.ID): // nobody asks for it any more
		done = group.Event{Kind: group.Done, Key: f.Key, Failed: true}
	}
	if f.Key != "" { // first: what comes after the answer to its reporter counts it as given
		c.result(of, done)
	}
	if event != nil && !done.Failed {
		c.Trace("given")
		c.Note(note, nil)
	}
	c.heard.tell(key, relay.Pass)
	c.passing.tell(key, Passage{Before: before})
}

// askMember asks Feishu whether the bot is in a chat.
func (c *Core) askMember(of loop.Chat, f *group.Effect) {
	c.retry(of, f, func() (bool, error) {
		is, err := c.Feishu.Member(c.ctx, of.ID)
		return !is, err
	})
}

// fetch asks Feishu for a bot's message whose sidecar did not bring it.
func (c *Core) fetch(of loop.Chat, f *group.Effect) {
	c.Watch.Missed(f.Msg)
	now, why := c.Feishu.Fetch(c.ctx, f.Msg)
	if c.ctx.Err() == nil {
		c.result(of, group.Event{Kind: group.Done, Key: f.Key, Msg: now, Names: c.Names(now), Reason: why})
	}
}

// show shows the group a notice or an answer, unless it is too late for that.
func (c *Core) show(of loop.Chat, f *group.Effect) {
	ctx, cancel := context.WithDeadline(c.ctx, f.Until.Time())
	defer cancel()
	c.Trace("sending")
	for pauses := wait.NewBackoff(retryFirst, retryMost); ctx.Err() == nil; _ = pauses.Sleep(ctx) {
		var id relay.MessageID
		var err error
		if f.Do == group.React {
			err = c.Feishu.React(ctx, f.ID)
		} else {
			id, err = c.Feishu.Reply(ctx, f.ID, f.Text, f.Key)
		}
		if err == nil {
			c.Trace("shown")
			c.result(of, group.Event{Kind: group.Done, Key: f.Key, ID: id})
			return
		}
		c.Watch.Problem("steer", err)
		if _, refused := errors.AsType[*feishu.CodeError](err); refused {
			break
		}
	}
	c.result(of, group.Event{Kind: group.Done, Key: f.Key, Failed: true})
}
