package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
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

// sendRequest reads the request. A field that cannot be read is empty.
func (t *tapped) sendRequest() (req sendRequest) {
	_ = json.Unmarshal(t.request, &req)
	return req
}

// accepted reads an answer. ok reports whether Feishu accepted the call.
func accepted[T any](t *tapped) (data T, ok bool) {
	data, err := feishu.ReadAnswer[T](t.answer)
	return data, err == nil && t.status < http.StatusMultipleChoices
}

// kindOf is the kind of the chat that a send went to; "" if it is unknown.
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
		return // the bot of another app may not be in this bot's chats
	}
	chat := g.recent.chatOf(t.message)
	if t.message == "" && t.http.URL.Query().Get("receive_id_type") == "chat_id" {
		chat = relay.ChatID(t.sendRequest().ReceiveID)
	}
	if chat != "" {
		g.left(chat, relay.MillisOf(time.Now()))
	}
}

// edited records a change of a message: PUT, or PATCH of a card (or a post, as
// OpenClaw does).
func (g *Gateway) edited(t *tapped) {
	_, ok := accepted[struct{}](t)
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
			d.Message.Content = req.Content
			d.Message.Mentions = content.Parse(d.Message.Type, req.Content, nil).Mentions()
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

// deleted records that the bot has recalled a message.
func (g *Gateway) deleted(t *tapped) {
	if _, ok := accepted[struct{}](t); !ok {
		return
	}
	g.Forget(t.message)
	if t.peer {
		return // what was sent as mail cannot be taken back
	}
	g.recalled(g.recent.chatOf(t.message), t.message, relay.MillisOf(time.Now()))
}

// reacted records the typing sign. When the bot removes it, its answer to that message is final.
func (g *Gateway) reacted(t *tapped) {
	reaction, ok := accepted[struct {
		ID string `json:"reaction_id"`
	}](t)
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
	if t.sendRequest().Reaction.Emoji == typingSign && reaction.ID != "" {
		g.recent.typing.Add(reaction.ID, t.message)
	}
}

// releaseAnswer makes final what the bot was editing as its answer to a message.
func (g *Gateway) releaseAnswer(to relay.MessageID) {
	chat := g.recent.chatOf(to)
	if g.opts.Peers != nil && peerchat.IsID(to) {
		m, _ := g.opts.Peers.Message(to)
		chat = m.Chat
	}
	g.drafts.release(func(m *feishu.Message) bool {
		return m.ParentID == to || m.RootID == to || m.ParentID == "" && chat != "" && m.ChatID == chat
	})
}

// releaseChat makes final what the bot was writing before its next message there.
func (g *Gateway) releaseChat(next *feishu.Message) {
	g.drafts.release(func(m *feishu.Message) bool {
		return m.ID != next.ID && m.ChatID == next.ChatID && m.ThreadID == next.ThreadID
	})
}

// cardRequest is what the CardKit calls carry, JSON within JSON strings
// (docs/feishu.md 5.2).
type cardRequest struct {
	Type     string `json:"type"`
	Data     string `json:"data"`
	Sequence int    `json:"sequence"`
	Content  string `json:"content"`
	Element  string `json:"element"`
	Partial  string `json:"partial_element"`
	Elements string `json:"elements"`
	Target   string `json:"target_element_id"`
	Settings string `json:"settings"`
	Actions  string `json:"actions"`
	Card     struct {
		Data string `json:"data"`
	} `json:"card"`
	MessageID relay.MessageID `json:"message_id"`
}

// cardChanged applies an accepted CardKit call to the card that is being written.
func (g *Gateway) cardChanged(t *tapped) {
	made, ok := accepted[struct {
		CardID string `json:"card_id"`
	}](t)
	var req cardRequest
	if !ok || json.Unmarshal(t.request, &req) != nil {
		return
	}
	switch {
	case (t.op == opCardCreate || t.op == opCardConvert) && made.CardID == "":
		return
	case t.op == opCardCreate:
		g.cardMade(made.CardID, req.Data)
		return
	case t.op == opCardConvert: // an inline card becomes one of CardKit
		g.drafts.onMessage(req.MessageID, func(d *draft) {
			if d.Card != nil {
				d.CardID = made.CardID
			}
		})
		return
	}
	change := func(d *draft) {
		if !d.newer(t.part(), req.Sequence) {
			return
		}
		streamed := d.Card.Streaming()
		d.Message.Mentions = nil // they were those of the card as it was sent
		if err := write(d.Card, t, &req); err != nil {
			g.count(countedCardUnreadable)
			g.log.Warn("a change of a card cannot be read", "message_id", d.Message.ID, "err", err)
		}
		if switchesOn(t, &req) {
			d.Streams = relay.MillisOf(time.Now())
		}
		d.Patched = d.Patched || !streamed && d.Message.ID != ""
		d.touch(time.Now(), t.op == opCardReplace, false)
		if d.Published != "" && d.Wait == waitSettle && !streamed {
			d.Wait = waitEdit // no end sign: it had ended before
		}
	}
	if g.drafts.onCard(t.card, change) || !t.peer {
		return
	}
	if m, ok := g.opts.Peers.WithCard(t.card); g.draftAgain(m, ok, "") {
		g.drafts.onCard(t.card, change)
	}
}

// part names what a call writes in a card, for [draft.newer]: an element, "" for the whole card, or a name that no
// element has. So an end sign that overtakes the last text does not make that text outdated.
func (t *tapped) part() string {
	switch t.op {
	case opCardReplace, opElementContent, opElementReplace, opElementPatch, opElementDelete:
		return t.element
	case opCardSettings:
		return "/settings"
	}
	return "/elements"
}

// switchesOn reports whether a call turns the card's streaming mode on.
func switchesOn(t *tapped, req *cardRequest) bool {
	if t.op != opCardReplace && t.op != opCardSettings && t.op != opCardBatch {
		return false
	}
	var alone feishu.Card
	return write(&alone, t, req) == nil && alone.Streaming()
}

func write(card *feishu.Card, t *tapped, req *cardRequest) error {
	switch t.op {
	case opCardReplace:
		return card.Replace([]byte(req.Card.Data))
	case opCardSettings:
		return card.Settings([]byte(req.Settings))
	case opCardBatch:
		return card.Batch([]byte(req.Actions))
	case opElementAdd:
		return card.AddElements(req.Type, req.Target, []byte(req.Elements))
	case opElementContent:
		card.SetContent(t.element, req.Content)
	case opElementReplace:
		return card.ReplaceElement(t.element, []byte(req.Element))
	case opElementPatch:
		return card.PatchElement(t.element, []byte(req.Partial))
	case opElementDelete:
		card.DeleteElement(t.element)
	}
	return nil
}

// cardMade keeps a new card until it is sent.
func (g *Gateway) cardMade(id, data string) {
	ms := relay.MillisOf(time.Now())
	g.drafts.add(&draft{CardID: id, Card: newCard(data), Created: ms, Touched: ms, Wait: waitSettle})
}

// newCard reads a card; one that cannot be read is empty, and gets what is
// written to it later.
func newCard(data string) *feishu.Card {
	card, err := feishu.NewCard([]byte(data))
	if err != nil {
		return &feishu.Card{}
	}
	return card
}

// bind connects the message d with the CardKit card that it shows.
func (g *Gateway) bind(d *draft, card string) {
	now := time.Now()
	found := g.drafts.onCard(card, func(made *draft) {
		if made.Message.ID == "" {
			made.Message = d.Message
			made.touch(now, false, false)
		}
	})
	if !found { // it was made before this run
		d.CardID, d.Card = card, &feishu.Card{}
		d.touch(now, false, false)
		g.drafts.add(d)
	}
	g.count(countedDraft)
	if g.kind(d.Message.ChatID) == "" {
		g.askChat(d.Message.ChatID)
	}
}
