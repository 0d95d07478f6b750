package sidecar

import (
	"cmp"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"feishu-relay/feishu/gateway"
	"feishu-relay/internal/delivery"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// maxEdits is how many edited messages are remembered that may wait for the bot.
const maxEdits = 200

// edit is the newest edit of a message.
type edit struct {
	relay.Message
	applied atomic.Bool // the message has its text
}

// edit shares the new text of a message of this bot with all sidecars of the group. Bots that have
// the message already do not get the new text.
func (s *steering) edit(m gateway.Sent) {
	s.share(steer.Mark{ID: "edited/" + string(m.ID) + "/" + randomID(), Kind: steer.Edited, Channel: relay.DefaultChannel,
		ChatID: m.ChatID, ThreadID: m.ThreadID, MessageID: m.ID, Of: m.ID, Text: m.Text,
		Said: cmp.Or(m.CreateTime, relay.MillisOf(time.Now()))})
}

// edited takes in what another bot's message, or this one's, says now: for the transcript, and for
// the bot where it has not been given the message yet.
func (s *steering) edited(m *steer.Mark) {
	msg := relay.Message{RelayMsgID: relay.MessageID("edit:" + short(m.ID)), Channel: m.Channel, ChatID: m.ChatID,
		ThreadID: m.ThreadID, Content: m.Text, SenderAgentName: m.Agent, MsgType: "text", TS: m.Said, Role: relay.RoleAssistant,
		Metadata: relay.Metadata{metaEditOf: quote(string(m.Of))}}
	msg.MessageID = msg.RelayMsgID
	sent := s.chats.peers.sentAt(&msg, time.Now())
	added, err := s.chats.record(s.chats.transcript.Append, m.Channel, m.ChatID, entryOf(&msg, sent))
	if err != nil {
		s.problems.set("transcript", err)
	}
	s.chats.edits.Add(string(m.Of), &edit{Message: msg})
	s.held.edit(string(m.Of), &msg)
	s.review(m.Channel, m.ChatID)
	if added {
		s.watch.shown(&msg, sent, false)
	}
}

// edited gives a message of which nothing was written yet the text of its newest edit. An edit
// waits behind its message in the order of the chat, so that this is done when it arrives.
func (c *chats) edited(w *delivery.Message, given bool) {
	e, ok := c.edits.Get(w.Key)
	if !ok || w.Source.SenderAgentName != e.SenderAgentName {
		return
	}
	if e.applied.Store(!given); given {
		return
	}
	source := *w.Source
	before := strings.TrimSuffix(w.Content, source.Content) // lines of context
	source.Content, source.Mentions = e.Content, e.Mentions
	w.Source, w.Content, w.Metadata = &source, before+e.Content, maps.Clone(w.Metadata)
	for _, key := range []string{metaKeys, relay.MetaFiles} {
		delete(w.Metadata, key)
		if value, ok := e.Metadata[key]; ok {
			w.Metadata[key] = value
		}
	}
	w.Metadata["mentions"] = append([]relay.Mention{}, e.Mentions...)
}

// edit gives a message that was stopped and may be released the text of an edit of it.
func (h *held) edit(of string, m *relay.Message) {
	h.change(of, func(w *heldMessage) bool {
		was, err := relay.Decode(w.Line)
		if err != nil || w.Released || was.SenderAgentName != m.SenderAgentName {
			return false
		}
		was.Content, was.Mentions = m.Content, m.Mentions
		line, err := was.Encode()
		if err != nil {
			h.problems.set("steer", err)
			return false
		}
		w.Line = line
		return true
	})
}
