package sidecar

import (
	"maps"
	"strings"
	"sync/atomic"

	"feishu-relay/internal/delivery"
	"feishu-relay/relay"
)

// maxEdits is how many edited messages are remembered that may wait for the bot.
const maxEdits = 200

// edit is the newest edit of a message.
type edit struct {
	relay.Message
	applied atomic.Bool // the message has its text
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
	w.Metadata["mentions"] = mentionsShown(e.Mentions)
}

// edit gives a message that was stopped and may be released the text of an edit of it.
func (h *held) edit(of string, m *relay.Message) {
	list := h.list(func(w *heldMessage) bool { return w.Key == of && !w.Released })
	for _, w := range list {
		was, err := relay.Decode(w.Line)
		if err != nil || was.SenderAgentName != m.SenderAgentName {
			continue
		}
		was.Content, was.Mentions = m.Content, m.Mentions
		if w.Line, err = was.Encode(); err == nil {
			err = h.note(w)
		}
		if err != nil {
			h.problems.set("steer", err)
		}
	}
}
