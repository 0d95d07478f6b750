package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
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
func (t *call) sendRequest() (req sendRequest) {
	_ = relay.Unmarshal(t.request, &req)
	return req
}

// personTypes are the values of receive_id_type of a send to a person.
var personTypes = []string{"open_id", "user_id", "union_id", "email"}

// sent takes a message that Feishu accepted.
func (g *Gateway) sent(t *call) {
	m, err := feishu.ParseSent(t.answer)
	if feishu.CodeOf(err) != 0 {
		return // Feishu did not accept it
	}
	if err != nil || m.ID == "" || m.ChatID == "" || t.status >= http.StatusMultipleChoices {
		g.count("unreadable")
		g.log.Warn("the answer to a send cannot be read; the message is not relayed", "status", t.status, "err", err)
		return
	}
	if !g.ours(t, m.Sender) {
		return
	}
	g.opts.Book.LearnSelf(feishu.Self{Tenant: m.Sender.Tenant})
	g.opts.Book.LearnMentions(m.Mentions)
	g.recent.chats.Add(m.ID, m.ChatID)
	kind, req := g.kind(m.ChatID), t.sendRequest()
	if kind == "" && slices.Contains(personTypes, t.http.URL.Query().Get("receive_id_type")) {
		kind = feishu.ChatP2P
	}
	if !t.peer {
		g.opts.Book.SawChat(m.ChatID, kind)
	}
	if kind == feishu.ChatP2P { // a private chat never leaves its bot, nor does a card that was sent there
		g.drafts.drop("", feishu.CardID(req.Content))
		return
	}
	if g.recent.sent.Contains(m.ID) || g.drafts.holds(m.ID) {
		return // the same send again, by its uuid
	}
	d := &draft{Message: m}
	d.Message.Type = cmp.Or(m.Type, req.MsgType)
	d.write(req.Content, m)
	g.keepSent(context.Background(), d)
	if !t.peer && g.drafts.holds(m.ID) { // else the host has seen by the message itself that the bot is in the chat
		g.opts.Host.Joined(m.ChatID, m.CreateTime)
	}
}

// keepSent makes a draft of a message, or completes that of the card that it shows.
func (g *Gateway) keepSent(ctx context.Context, d *draft) {
	found := d.CardID != "" && g.drafts.change("", d.CardID, func(made *draft) {
		if made.Message.ID == "" {
			made.Message = d.Message
			doc := g.touch(made, false, false)
			g.count("draft")
			g.goesOn(made, doc)
		}
	})
	if d.CardID != "" && !found && !d.toPeer() { // it was made before this run, and most likely to be streamed
		d.Streams = relay.MillisOf(time.Now())
	}
	if !found {
		g.add(ctx, d)
	}
}

// write makes what the bot wrote what d says, or the message as Feishu shows it where the call has no content, as that
// of a forward. Feishu's answers show cards simplified, and no mention of an id that the sidecar has made up. A card of
// CardKit is empty for now.
func (d *draft) write(written string, shown feishu.Message) {
	d.Message.Content, d.Message.Mentions = cmp.Or(written, shown.Content), shown.Mentions
	if d.Message.Type != typeCard {
		if written != "" {
			d.Message.Mentions = withNames(content.Parse(d.Message.Type, written, nil).Mentions(), shown.Mentions)
		}
	} else if id := feishu.CardID(d.Message.Content); id != "" {
		d.CardID, d.Card = id, &feishu.Card{}
	} else if card, err := feishu.NewCard([]byte(d.Message.Content)); err == nil {
		d.Card = card
	}
}

// withNames fills in mentions, as the bot wrote them, what Feishu shows of them, if it shows as many.
func withNames(written, shown []feishu.Mention) []feishu.Mention {
	if len(written) != len(shown) {
		return written
	}
	for i := range written {
		m, as := &written[i], &shown[i]
		if m.OpenID == "" || as.OpenID == "" || m.OpenID == as.OpenID {
			m.Name, m.AppID, m.Type = cmp.Or(m.Name, as.Name), cmp.Or(m.AppID, as.AppID), cmp.Or(m.Type, as.Type)
		}
	}
	return written
}

// edited records a change of a message: PUT, or PATCH of a card (or a post, as
// OpenClaw does).
func (g *Gateway) edited(t *call) {
	if _, ok := accepted[struct{}](t); !ok {
		g.cut(t, t.message, "")
		return
	}
	req := t.sendRequest()
	m, _ := feishu.ParseSent(t.answer) // to PATCH it has none
	if req.Content == "" || m.Sender.AppID != "" && !g.ours(t, m.Sender) {
		return
	}
	g.opts.Book.LearnMentions(m.Mentions)
	change := func(d *draft) {
		streamed := d.streaming()
		d.Patched, d.Cut, d.Streams = true, 0, 0
		d.write(req.Content, m)
		g.touch(d, false, streamed)
	}
	if g.drafts.change(t.message, "", change) || g.recent.gone.Contains(t.message) {
		return
	}
	was, known := g.recent.sent.Get(t.message) // it was published at once, or long ago
	d := &draft{Message: was, Shown: unknownSum}
	if !known {
		d.Message = m
		d.Message.Type = cmp.Or(m.Type, req.MsgType)
	} else if was.Content != "" {
		d.write("", was)
		doc := d.doc()
		d.Given, d.Shown = doc.Text(), doc.Sum()
	}
	if g.kind(d.Message.ChatID) == feishu.ChatGroup {
		g.add(context.Background(), d)
		g.drafts.change(t.message, "", change)
	}
}

// unknownSum is the sum of what a message said that is not known any more.
const unknownSum = "?"

// Codes of answers (docs/feishu.md 6.2).
const (
	codeSequence  = 300317 // another write has overtaken this one
	codeFrequency = 230020
	codeGateway   = 99991400
	codeField     = 99992402
	// cutForNow is in the place of a code where the bot may try again: it made too many calls, or Feishu has a fault.
	cutForNow = 1
)

// cut records that Feishu refused to change the text of a draft, unless the call came too late.
func (g *Gateway) cut(t *call, message relay.MessageID, card string) {
	_, err := feishu.ReadAnswer[json.RawMessage](t.answer)
	code := feishu.CodeOf(err)
	if code == codeSequence {
		return
	}
	if code == 0 || code == codeFrequency || code == codeGateway || t.status >= http.StatusTooManyRequests {
		code = cutForNow
	}
	g.drafts.change(message, card, func(d *draft) {
		if d.Message.ID != "" && !d.toPeer() {
			d.Cut = code
			g.touch(d, false, false)
		}
	})
}

// Forget drops the draft of a recalled message. The message is not published later.
func (g *Gateway) Forget(id relay.MessageID) {
	g.recent.gone.Add(id, struct{}{})
	if g.drafts.drop(id, "") {
		g.count("draft_recalled")
	}
}

// ears is the host of what the bot hears.
type ears struct {
	Host
	g *Gateway
}

// Said reports whether the bot has said m, and remembers where it was said.
func (e ears) Said(m *feishu.Message) bool {
	if e.g.recent.sent.Contains(m.ID) || e.g.drafts.holds(m.ID) {
		return true
	}
	e.g.recent.chats.Add(m.ID, m.ChatID)
	return false
}

func (e ears) Recalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	e.g.Forget(id)
	e.Host.Recalled(chat, id, at)
}

// deleted records that the bot has recalled a message.
func (g *Gateway) deleted(t *call) {
	if _, ok := accepted[struct{}](t); !ok {
		return
	}
	g.Forget(t.message)
	if !t.peer { // what was sent as mail cannot be taken back
		g.opts.Host.Recalled(g.recent.chatOf(t.message), t.message, relay.MillisOf(time.Now()))
	}
}

// reacted records the typing sign. When the bot removes it, its answer to that message is final.
func (g *Gateway) reacted(t *call) {
	reaction, ok := accepted[struct {
		ID string `json:"reaction_id"`
	}](t)
	one := t.path.PathValue("one")
	on, typed := g.recent.typing.Get(one)
	switch {
	case !ok:
	case one == "" && t.sendRequest().Reaction.Emoji == typingSign && reaction.ID != "":
		g.recent.typing.Add(reaction.ID, t.message)
	case typed:
		g.recent.typing.Remove(one)
		g.recent.typingStays.Store(false)
		g.drafts.mu.Lock()
		defer g.drafts.mu.Unlock()
		for _, d := range g.drafts.all {
			if d.Message.ID != "" && d.Cut == 0 && !d.idle() && g.answers(&d.Message, on) {
				g.drafts.finish(d)
			}
		}
	}
}

// types reports whether the sign that the bot types is on the message that m answers. Signs do not count once one was
// waited for in vain, until the bot removes one.
func (g *Gateway) types(m *feishu.Message) bool {
	return !g.recent.typingStays.Load() &&
		slices.ContainsFunc(g.recent.typing.Values(), func(on relay.MessageID) bool { return g.answers(m, on) })
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

// cardRequest is what of the CardKit calls is read here (docs/feishu.md 5.2).
type cardRequest struct {
	Data      string          `json:"data"`
	Sequence  int             `json:"sequence"`
	MessageID relay.MessageID `json:"message_id"`
}

// cardMade keeps a new card until it is sent.
func (g *Gateway) cardMade(t *call) {
	made, req, ok := t.card()
	card, err := feishu.NewCard([]byte(req.Data))
	if err != nil {
		card = &feishu.Card{} // it gets what is written to it later
	}
	if ok && made != "" {
		g.add(context.Background(), &draft{CardID: made, Card: card})
	}
}

// cardConverted makes a card of CardKit of an inline card.
func (g *Gateway) cardConverted(t *call) {
	made, req, ok := t.card()
	if ok && made != "" {
		g.drafts.change(req.MessageID, "", func(d *draft) {
			if d.Card != nil {
				d.CardID = made
			}
		})
	}
}

// card reads a CardKit call. ok reports whether Feishu accepted it.
func (t *call) card() (made string, req cardRequest, ok bool) {
	answer, ok := accepted[struct {
		CardID string `json:"card_id"`
	}](t)
	return answer.CardID, req, ok && (len(t.request) == 0 || json.Unmarshal(t.request, &req) == nil)
}

// cardChanged applies an accepted CardKit call to the card that is being written.
func (g *Gateway) cardChanged(t *call) {
	id, element := t.path.PathValue("card"), t.path.PathValue("element")
	_, what, _ := strings.Cut(t.path.Pattern, "{card}")
	_, req, ok := t.card()
	if !ok {
		if what != "/settings" {
			g.cut(t, "", id)
		}
		return
	}
	// part is what the call writes: an element, "" for the whole card, or a name that no element has. So an end sign that
	// overtakes the last text does not make that text outdated.
	part := cmp.Or(element, what)
	g.drafts.change("", id, func(d *draft) {
		if !d.newer(part, req.Sequence) {
			return
		}
		streamed := d.Card.Streaming()
		d.Message.Mentions = nil // they were those of the card as it was sent
		if err := d.Card.Apply(t.http.Method+" "+what, element, t.request); err != nil {
			g.count("card_unreadable")
			g.log.Warn("a change of a card cannot be read", "message_id", d.Message.ID, "err", err)
		}
		if d.Card.Streaming() && bytes.Contains(t.request, []byte("streaming_mode")) {
			d.Streams = relay.MillisOf(time.Now()) // it is switched on
		}
		d.Patched = d.Patched || !streamed && d.Message.ID != ""
		if what != "/settings" {
			d.Cut = 0
		}
		g.touch(d, what == "", streamed)
	})
}
