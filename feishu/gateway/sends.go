package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// typingSign is the reaction that bots set on a message while they answer it.
const typingSign = "Typing"

// sendRequest is what the calls that send or change a message carry.
type sendRequest struct {
	ReceiveID string `json:"receive_id"`
	MsgType   string `json:"msg_type"`
	Content   string `json:"content"`
	Reaction  struct {
		Emoji string `json:"emoji_type"`
	} `json:"reaction_type"`
}

// sendRequest reads the request; what cannot be read is empty.
func (t *tapped) sendRequest() (req sendRequest) {
	_ = json.Unmarshal(t.request, &req)
	return req
}

// accepted reads a plain answer; ok is whether Feishu did what was asked.
func (t *tapped) accepted() (data json.RawMessage, code int, ok bool) {
	var ans struct {
		Code *int            `json:"code"`
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(t.answer, &ans) != nil || ans.Code == nil {
		return nil, 0, false
	}
	return ans.Data, *ans.Code, *ans.Code == 0 && t.status < http.StatusMultipleChoices
}

// kindOf is what is known of the chat that a send went to.
func (g *Gateway) kindOf(t *tapped, chat relay.ChatID) string {
	if kind := g.kind(chat); kind != "" {
		return kind
	}
	switch t.http.URL.Query().Get("receive_id_type") {
	case "open_id", "user_id", "union_id", "email":
		return feishu.ChatP2P // sent to a person
	}
	return ""
}

// refused reads a send that Feishu did not accept.
func (g *Gateway) refused(ctx context.Context, t *tapped, code int) {
	if code != feishu.CodeNotInChat {
		return
	}
	if ours, _ := g.proven(ctx, t.token); !ours {
		return // another app's bot may well not be in our chats
	}
	chat := g.recent.chatOf(t.message)
	if t.message == "" && t.http.URL.Query().Get("receive_id_type") == "chat_id" {
		chat = relay.ChatID(t.sendRequest().ReceiveID)
	}
	if chat != "" {
		g.left(chat, relay.MillisOf(time.Now()))
	}
}

// edited takes a change of a message: PUT, or PATCH of a card (or a post, as
// OpenClaw does).
func (g *Gateway) edited(t *tapped) {
	_, _, ok := t.accepted()
	req := t.sendRequest()
	if !ok || req.Content == "" {
		return
	}
	var m feishu.Message
	if t.op == opEdit {
		var err error
		if m, err = feishu.ParseSent(t.answer); err == nil && m.Sender.AppID != "" && !g.ours(t, m.Sender) {
			return
		}
		g.opts.Book.LearnMentions(m.Mentions)
		g.asWritten(&m, t)
	}
	now := time.Now()
	_, patches := g.habits.current()
	found := g.drafts.onMessage(t.message, func(d *draft) {
		g.habits.edits(d.Message.Type == typeCard, d.Created.Time(), now)
		d.Patched = true
		switch {
		case d.Card != nil:
			if card, err := feishu.NewCard([]byte(req.Content)); err == nil {
				d.Card, d.Message.Content, d.Streams = card, req.Content, 0
				d.Message.Mentions = nil // they were those of the card before
			}
		case m.Content != "":
			d.Message.Content, d.Message.Mentions = m.Content, m.Mentions
		default:
			d.Message.Content, d.Message.Mentions = req.Content, feishu.Mentioned(d.Message.Type, req.Content)
		}
		d.touch(now, false, patches)
	})
	if found {
		return
	}
	if t.peer {
		was, ok := g.opts.Peers.Message(t.message)
		g.draftAgain(was, ok, req.Content)
		return
	}
	if p, ok := g.recent.sent.Get(t.message); ok {
		g.habits.edits(p.card, p.at, now)
	}
	if m.ChatID = cmp.Or(m.ChatID, g.recent.chatOf(t.message)); m.Content != "" && m.ID == t.message &&
		!g.recent.gone.Contains(m.ID) && g.kind(m.ChatID) == feishu.ChatGroup {
		g.opts.Host.Edited(g.finished(Sent{Message: m, Text: m.Text(), EditOf: m.ID}))
	}
}

// deleted takes the bot's own recall of a message.
func (g *Gateway) deleted(t *tapped) {
	if _, _, ok := t.accepted(); !ok {
		return
	}
	g.Forget(t.message)
	if t.peer {
		return // what was sent as mail cannot be taken back
	}
	g.recalled(g.recent.chatOf(t.message), t.message, relay.MillisOf(time.Now()))
}

// reacted watches the typing sign: taken back, the answer to that message is
// final.
func (g *Gateway) reacted(t *tapped) {
	data, _, ok := t.accepted()
	if !ok {
		return
	}
	if t.op == opUnreact {
		if on, ok := g.recent.typing.Get(t.reaction); ok {
			g.recent.typing.Remove(t.reaction)
			g.releaseAnswer(on)
		}
		return
	}
	var ans struct {
		ID string `json:"reaction_id"`
	}
	if json.Unmarshal(data, &ans) == nil && t.sendRequest().Reaction.Emoji == typingSign && ans.ID != "" {
		g.recent.typing.Add(ans.ID, t.message)
	}
}

// releaseAnswer makes final what the bot was editing as its answer to a message.
func (g *Gateway) releaseAnswer(to relay.MessageID) {
	chat := g.recent.chatOf(to)
	if g.opts.Peers != nil && peerchat.IsID(to) {
		m, _ := g.opts.Peers.Message(to)
		chat = m.Chat
	}
	g.release(func(m *feishu.Message) bool {
		return m.ParentID == to || m.RootID == to || m.ParentID == "" && chat != "" && m.ChatID == chat
	})
}

// releaseChat makes final what the bot was writing before its next message there.
func (g *Gateway) releaseChat(next *feishu.Message) {
	g.release(func(m *feishu.Message) bool {
		return m.ID != next.ID && m.ChatID == next.ChatID && m.ThreadID == next.ThreadID
	})
}

func (g *Gateway) release(which func(*feishu.Message) bool) {
	g.drafts.each(
		func(d *draft) bool {
			return (d.Wait == waitEdit || d.Wait == waitSettle) && d.CardID == "" && d.ready() && which(&d.Message)
		},
		func(d *draft) { d.Wait = waitNone })
}
