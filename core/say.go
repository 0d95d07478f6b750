package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/group"
	"feishu-relay/loop"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// ChatOf is a chat by its channel, "" for Feishu, and its id.
func ChatOf(channel string, chat relay.ChatID) loop.Chat {
	return loop.Chat{Channel: cmp.Or(channel, relay.DefaultChannel), ID: chat}
}

// maxPending is the most bytes of own messages that wait for the backend; beyond it sends are refused.
const maxPending = 64 << 20

// Say takes what the bot says that it sent, and returns once it is in the book. Only group messages are relayed.
func (c *Core) Say(ctx context.Context, out relay.Outbound) (relay.Sent, error) {
	of, ts := ChatOf(out.Channel, out.ChatID), cmp.Or(max(out.TS, 0), relay.MillisOf(time.Now()))
	id := out.MessageID
	if id == "" {
		id = relay.NewID(c.Agent, out.ChatID, ts, rand.Text()[:10])
	}
	if !isGroup(out.ChatType) || !ofGroup(out.Metadata) {
		return relay.Sent{RelayMsgID: id}, nil
	}
	meta := relay.Metadata{}
	maps.Copy(meta, out.Metadata)
	delete(meta, "is_mentioned")
	meta["chat_type"], meta["group_policy"] = encode("group"), encode(c.Config(of).GroupPolicy)
	self := c.Self()
	m := &relay.Message{RelayMsgID: id, Channel: of.Channel, ChatID: of.ID, Content: out.Content, Metadata: meta,
		SenderBotOpenID: self.OpenID, SenderAgentName: c.Agent, SenderAppID: self.AppID, SenderName: self.Name,
		MessageID: out.MessageID, TS: ts, Mentions: c.Resolve(out), MsgType: cmp.Or(out.MsgType, "text"),
		ParentID: out.ParentID, RootID: out.RootID, ThreadID: out.ThreadID}
	if err := c.fits(m); err != nil {
		return relay.Sent{}, err
	}
	if c.recalled(of, m) { // for all
		return relay.Sent{RelayMsgID: id}, nil
	}
	if c.Lane(Outbound).Bytes > maxPending {
		return relay.Sent{}, &relay.Error{Code: relay.CodeOutboxFull,
			Message: "the relay backend has been away for too long; no more messages are kept for it"}
	}
	c.member(ctx, of, true)
	e := group.Event{Kind: group.Said, Msg: m, Names: c.Names(m)}
	if err := c.loop.Save(ctx, loop.Event{Chat: of, Group: &e}); err != nil {
		return relay.Sent{}, &relay.Error{Code: relay.CodeOutboxUnavailable,
			Message: "the message cannot be written down (see /v1/status); send it again later, with the same message_id"}
	}
	c.Trace("accepted")
	c.Watch.Said(m)
	c.Trace("answering")
	return relay.Sent{RelayMsgID: id, Relayed: true}, nil
}

// fits reports why a message cannot be relayed.
func (c *Core) fits(m *relay.Message) error {
	line, err := m.Encode()
	if err == nil && c.Secret != "" {
		_, err = relay.Sign(line, c.Secret)
	}
	switch {
	case errors.Is(err, relay.ErrTooLarge):
		return &relay.Error{Code: relay.CodeTooLarge, Message: err.Error()}
	case errors.Is(err, relay.ErrUnsignable):
		return &relay.Error{Code: relay.CodeInvalidRequest, Message: err.Error()}
	case err != nil:
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// Hear takes what the bot says that it heard from a person, and tells whether it is for this bot. steers: it may be a
// command.
func (c *Core) Hear(ctx context.Context, h relay.Heard, steers bool) (relay.Sent, error) {
	of, ts := ChatOf(h.Channel, h.ChatID), cmp.Or(max(h.TS, 0), relay.MillisOf(time.Now()))
	id := h.MessageID
	if id == "" { // several bots may report the same message: they give it the same id
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", h.ChatID, cmp.Or(h.Sender, string(h.SenderID)),
			h.TS, h.Content))
		if h.TS <= 0 {
			copy(sum[:], rand.Text())
		}
		id = relay.MessageID("user:" + hex.EncodeToString(sum[:12]))
	}
	if !isGroup(h.ChatType) || !ofGroup(h.Metadata) {
		return relay.Sent{RelayMsgID: id, ForMe: new(true)}, nil
	}
	meta := relay.Metadata{"chat_type": encode("group")}
	if keys, ok := h.Metadata["media_keys"]; ok {
		meta["media_keys"] = keys
	}
	if err := meta.SetFiles(h.Metadata.Files()); err != nil {
		c.Watch.Problem("files", err) // the message goes on without them
	}
	m := &relay.Message{RelayMsgID: id, Channel: of.Channel, ChatID: of.ID, Content: h.Content, SenderAgentName: c.Agent,
		SenderBotOpenID: c.Self().OpenID, Metadata: meta, MessageID: id, TS: ts, SenderName: cmp.Or(h.SenderName, h.Sender),
		MsgType: cmp.Or(h.MsgType, "text"), Mentions: h.Mentions, ParentID: h.ParentID, RootID: h.RootID,
		ThreadID: h.ThreadID, Role: relay.RoleUser, SenderID: h.SenderID}
	if m.SenderID == "" && strings.HasPrefix(h.Sender, "ou_") {
		m.SenderID = relay.OpenID(h.Sender)
	}
	if err := c.fits(m); err != nil {
		return relay.Sent{}, err
	}
	e := c.heardEvent(ctx, of, Hearing{m, h.SenderType, h.UnionID})
	if !steers && e.User && c.Steers(ctx, of, m) != relay.Pass {
		return relay.Sent{}, ErrSteers
	}
	c.member(ctx, of, true)
	what, forget := c.heard.wait(of.Key(id))
	defer forget()
	if err := c.loop.Save(ctx, loop.Event{Chat: of, Group: &e}); err != nil {
		return relay.Sent{}, &relay.Error{Code: relay.CodeTranscriptUnavailable,
			Message: "the message cannot be written down (see /v1/status); send it again later"}
	}
	c.Trace("heard")
	select {
	case why := <-what:
		return relay.Sent{RelayMsgID: id, Relayed: c.Config(of).ShareMessages && why != relay.Command, Reason: why,
			ForMe: new(why == relay.Pass)}, nil
	case <-ctx.Done():
		return relay.Sent{}, context.Cause(ctx)
	}
}

// ErrSteers means that a message asks to steer the group, and that its reporter may not.
var ErrSteers = errors.New("the message asks to steer the group")

// stateOf is what is known of a chat, also if nothing is.
func (c *Core) stateOf(s *loop.Core, of loop.Chat, now time.Time) *group.State {
	g := s.Group(of)
	if g == nil {
		g = group.New()
		g.Apply(group.Event{Kind: group.Start, At: now, Config: c.Config(of)})
	}
	return g
}

// call posts an event whose answer is a Respond, and returns that.
func (c *Core) call(ctx context.Context, event func(call string) loop.Event) error {
	call := rand.Text()
	got, forget := c.calls.wait(call)
	defer forget()
	if err := c.loop.Save(ctx, event(call)); err != nil {
		return err
	}
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Change changes a group over the API: by settings as JSON, or by a verb.
func (c *Core) Change(ctx context.Context, of loop.Chat, verb group.Verb, settings []byte,
	bots []relay.AgentName) error {
	return c.call(ctx, func(call string) loop.Event {
		return loop.Event{Chat: of, Group: &group.Event{Kind: group.Changed, Call: call, Verb: verb, Body: string(settings),
			Agents: bots}}
	})
}

// IsGroup reports whether a message is a group's, by what its reporter says.
func IsGroup(chatType string, meta relay.Metadata) bool { return isGroup(chatType) && ofGroup(meta) }

// ofGroup reports whether metadata says, or does not deny, that a message is a group's.
func ofGroup(meta relay.Metadata) bool {
	_, says := meta["chat_type"]
	return !says || isGroup(meta.Text("chat_type"))
}

func isGroup(chatType string) bool {
	return chatType == "" || chatType == "group" || chatType == "topic"
}

// Meet makes a chat known in which the operator says that the bot is.
func (c *Core) Meet(ctx context.Context, of loop.Chat) { c.member(ctx, of, false) }

// Decide is what would become of a message if it came now; nothing is changed.
func (c *Core) Decide(ctx context.Context, e group.Event) (policy.Decision, relay.Reason, error) {
	of := loop.Chat{Channel: e.Msg.Channel, ID: e.Msg.ChatID}
	var why relay.Reason
	var d *policy.Decision
	var asks bool
	err := c.loop.View(ctx, func(s *loop.Core) {
		why, d, asks = c.stateOf(s, of, e.At).Weigh(e)
	})
	if err != nil || d == nil {
		return policy.Decision{}, why, err
	}
	if !asks {
		return *d, why, nil
	}
	q, err := c.Question(of, PolicyEntry(c.entry(e.Msg)), slices.Contains(e.Names.Bots, c.Agent))
	if err != nil {
		return policy.Decision{}, why, err
	}
	return c.judged(ctx, q, d.Depth), why, ctx.Err()
}
