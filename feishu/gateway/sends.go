package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
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
	kind := ""
	if slices.Contains([]string{"open_id", "user_id", "union_id", "email"}, t.http.URL.Query().Get("receive_id_type")) {
		kind = feishu.ChatP2P // sent to a person
	}
	return cmp.Or(g.kind(chat), kind)
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
	if !ok {
		g.cut(t)
	}
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
	change := func(d *draft) {
		streamed := d.streaming()
		d.Patched, d.Cut = true, 0
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
		g.touch(d, false, streamed)
	}
	was, _ := g.recent.sent.Get(t.message)
	switch chat := cmp.Or(m.ChatID, was.ChatID); {
	case g.drafts.onMessage(t.message, change) || g.recent.gone.Contains(t.message):
	case t.peer:
		was, ok := g.opts.Peers.Message(t.message)
		g.draftAgain(was, ok, req.Content)
	case g.kind(chat) == feishu.ChatGroup: // it was published at once, or long ago
		d := &draft{Message: m, Created: relay.MillisOf(time.Now()), Published: unknownSum}
		if d.Message.ID = t.message; was.Content != "" {
			d.Message = was
			doc := d.doc()
			d.Given, d.Published = doc.Text(), doc.Sum()
		}
		d.Message.ChatID, d.Message.Type = chat, cmp.Or(d.Message.Type, was.Type, req.MsgType)
		change(d)
		g.drafts.add(d, func(*draft) {})
	}
}

// unknownSum is the sum of what a message said that is not known any more.
const unknownSum = "?"

// Codes of answers (docs/feishu.md 6.2).
const (
	codeSequence  = 300317 // another write has overtaken this one
	codeFrequency = 230020
	codeGateway   = 99991400
	// cutForNow is in the place of a code where the bot may try again: it made too many calls, or Feishu has a fault.
	cutForNow = 1
)

// cut records that Feishu refused to change the text of a draft, unless the call came too late.
func (g *Gateway) cut(t *tapped) {
	_, err := feishu.ReadAnswer[json.RawMessage](t.answer)
	code := feishu.CodeOf(err)
	if code == codeSequence || t.op == opCardSettings || !g.own.trusts(t.token) {
		return
	}
	if code == 0 || code == codeFrequency || code == codeGateway || t.status >= http.StatusTooManyRequests {
		code = cutForNow
	}
	g.drafts.change(cmp.Or(string(t.message), cardKey+t.card), func(d *draft) {
		if d.Message.ID != "" && !d.toPeer() {
			d.Cut = code
			g.touch(d, false, false)
		}
	})
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
			g.recent.typingStays.Store(false)
			g.drafts.release(func(d *draft) bool {
				return d.Cut == 0 && !d.idle(&g.opts) && g.answers(&d.Message, on)
			})
		}
		return
	}
	if t.sendRequest().Reaction.Emoji == typingSign && reaction.ID != "" {
		g.recent.typing.Add(reaction.ID, t.message)
	}
}

// answers reports whether m answers a message: as a reply, or else in its chat.
func (g *Gateway) answers(m *feishu.Message, to relay.MessageID) bool {
	chat := g.recent.chatOf(to)
	if g.opts.Peers != nil && peerchat.IsID(to) {
		on, _ := g.opts.Peers.Message(to)
		chat = on.Chat
	}
	return m.ParentID == to || m.RootID == to || m.ParentID == "" && chat != "" && m.ChatID == chat
}

// goesOn returns what happens to each draft before d in its conversation. d takes the place of one that is unfinished
// and that it begins with, or whose change Feishu has just refused. Other texts are final.
func (g *Gateway) goesOn(d *draft) func(*draft) {
	return func(other *draft) {
		changing := other.Card != nil || other.Patched || other.Due.Time().Sub(other.Touched.Time()) > g.opts.Settle
		switch {
		case other.Message.CreateTime > d.Message.CreateTime || other.idle(&g.opts):
		case other.toPeer():
			g.drafts.finish(other)
		case other.Cut > cutForNow && other.Message.ParentID == d.Message.ParentID,
			changing && content.Begins(d.doc().Text(), other.doc().Text()):
			g.log.Info("a message takes the place of one that the bot did not finish", "chat", d.Message.ChatID,
				"message_id", d.Message.ID, "instead_of", other.Message.ID)
			if other.Published == "" {
				g.recent.gone.Add(other.Message.ID, struct{}{})
			}
			g.drafts.replace(other)
		default:
			g.drafts.finish(other)
		}
	}
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
	if !ok {
		g.cut(t)
	}
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
		if t.op != opCardSettings {
			d.Cut = 0
		}
		g.touch(d, t.op == opCardReplace, streamed)
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
	d := &draft{CardID: id, Card: newCard(data), Created: relay.MillisOf(time.Now())}
	g.touch(d, false, false)
	g.drafts.add(d, func(*draft) {})
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
	found := g.drafts.onCard(card, func(made *draft) {
		if made.Message.ID == "" {
			made.Message = d.Message
			g.touch(made, false, false)
			g.drafts.each(made, g.goesOn(made))
		}
	})
	if !found { // it was made before this run, and most likely to be streamed
		d.CardID, d.Card = card, &feishu.Card{}
		if !d.toPeer() {
			d.Streams = d.Created
		}
		g.add(context.Background(), d)
		return
	}
	g.count(countedDraft)
	if g.kind(d.Message.ChatID) == "" {
		g.askChat(d.Message.ChatID)
	}
}

// add publishes a message that was sent now, or makes a draft of it.
func (g *Gateway) add(ctx context.Context, d *draft) {
	g.touch(d, false, false)
	kind, out := g.kind(d.Message.ChatID), d.finished()
	switch now := kind == feishu.ChatGroup && g.drafts.first(d) && !g.mustAsk(&out); {
	case now && g.publish(ctx, out) == nil:
		g.drafts.mu.Lock()
		defer g.drafts.mu.Unlock()
		g.drafts.each(d, g.goesOn(d))
		return
	case now:
		d.tries, d.retryAt = 1, time.Now().Add(time.Second)
	}
	g.drafts.add(d, g.goesOn(d))
	if kind == "" {
		g.askChat(d.Message.ChatID)
	}
}
