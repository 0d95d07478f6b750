package gateway

import (
	"encoding/json"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

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
	data, _, ok := t.accepted()
	var req cardRequest
	if !ok || json.Unmarshal(t.request, &req) != nil {
		return
	}
	switch t.op {
	case opCardCreate, opCardConvert:
		var ans struct {
			CardID string `json:"card_id"`
		}
		if json.Unmarshal(data, &ans) != nil || ans.CardID == "" {
			return
		}
		if t.op == opCardCreate {
			g.cardMade(ans.CardID, req.Data)
		} else {
			// An inline card becomes one of CardKit.
			g.drafts.onMessage(req.MessageID, func(d *draft) {
				if d.Card != nil {
					d.CardID = ans.CardID
				}
			})
		}
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

// part is what of a card a call writes to, as [draft.newer] tells them apart: an
// element, "" for all of it, or a name that no element has. An end sign that
// overtakes the last text is not later than that text.
func (t *tapped) part() string {
	switch t.op {
	case opCardReplace, opElementContent, opElementReplace, opElementPatch, opElementDelete:
		return t.element
	case opCardSettings:
		return "/settings"
	}
	return "/elements"
}

// switchesOn reports whether a call says that the card streams from then on.
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

// bind joins the message d to the CardKit card it shows.
func (g *Gateway) bind(d *draft, card string) {
	now := time.Now()
	found := g.drafts.onCard(card, func(made *draft) {
		if made.Message.ID == "" {
			made.Message = d.Message
			made.touch(now, false, false)
		}
	})
	if !found { // made before this run could see it
		d.CardID, d.Card = card, &feishu.Card{}
		d.touch(now, false, false)
		g.drafts.add(d)
	}
	g.count(countedDraft)
	if g.kind(d.Message.ChatID) == "" {
		g.askChat(d.Message.ChatID)
	}
}
