package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// toPeer reports whether a call is one for a chat with another agent, as far as its body was read.
func (g *Gateway) toPeer(t *tapped, body []byte) bool {
	if g.opts.Peers == nil {
		return false
	}
	card := false
	if t.card != "" {
		_, card = g.opts.Peers.WithCard(t.card)
		card = card && !g.recent.cards.Contains(t.card) // else Feishu's chat is to see the change, too
	}
	return card || peerchat.Named(t.http, body)
}

// mayNamePeer reports whether the body of a call has to be read, since it may name a chat with another agent.
func (g *Gateway) mayNamePeer(r *http.Request) bool {
	return g.opts.Peers != nil && r.Body != nil && r.Body != http.NoBody && peerchat.BodyMayName(r)
}

// plain is the body of a call without its Content-Encoding, where it has one and may name a chat with another agent.
// unread: nobody knows to which chat the call sends, since not all of the body could be read.
func (g *Gateway) plain(t *tapped, body []byte, whole bool) (plain []byte, unread bool) {
	if !g.mayNamePeer(t.http) {
		return body, false
	}
	if encoding := t.http.Header.Get("Content-Encoding"); encoding != "" && whole {
		unpacked, err := t.held.unpack(encoding, body)
		if err == nil {
			return unpacked, false
		}
		whole = false
		t.crowded = t.crowded || errors.Is(err, feishu.ErrNoRoom)
	}
	if t.op == opCreate && !whole {
		return nil, true
	}
	return body, false
}

// completePeers adds what is known of the other agents and of the messages in their chats to the data of a look-up.
func (g *Gateway) completePeers(t *tapped, data map[string]json.RawMessage) bool {
	ask := t.http.Clone(t.http.Context())
	ask.URL.RawQuery = t.ours
	var ours struct {
		Code int
		Data map[string]json.RawMessage
	}
	if json.NewDecoder(g.opts.Peers.Answer(ask, nil, true).Body).Decode(&ours) != nil || ours.Code != 0 {
		return false
	}
	for name, raw := range ours.Data {
		var items, others []json.RawMessage
		if json.Unmarshal(raw, &others) == nil {
			_ = json.Unmarshal(data[name], &items) // a null or strange list is as none, and so is a map
			data[name], _ = relay.Marshal(append(items, others...))
			continue
		}
		all := map[string]json.RawMessage{}
		_ = json.Unmarshal(data[name], &all)
		_ = json.Unmarshal(raw, &all)
		data[name], _ = relay.Marshal(all)
	}
	return true
}

// peering answers the calls for chats with other agents in the place of Feishu. A message there is only accepted where
// there is room to make a draft of it.
type peering struct {
	g    *Gateway
	next http.RoundTripper
}

func (p peering) RoundTrip(r *http.Request) (*http.Response, error) {
	t, _ := r.Context().Value(tappedKey{}).(*tapped)
	if t == nil || !t.peer {
		return p.next.RoundTrip(r)
	}
	if r.Body != nil {
		_, err := io.Copy(io.Discard, r.Body) // what is too long to be read is refused
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), hostWait)
	defer cancel()
	proven, err := p.g.proven(ctx, t.token)
	if err != nil {
		return nil, err // Feishu is away, and the bot may well be the bot
	}
	var resp *http.Response
	if t.crowded || t.op.says() && !p.g.reserve(t) {
		p.g.log.Error("too many calls are being recorded; the bot has to repeat a call for an agent")
		resp = peerchat.TooMany(r)
	} else {
		p.g.count(countedPeerAnswered)
		resp = p.g.opts.Peers.Answer(t.http, t.request, proven)
	}
	resp.Request = r
	return resp, nil
}

// undecided makes drafts of what the bot was told is sent in chats with other agents, and the host has not taken: an
// earlier run was killed before it had the draft on disk, or the chats were switched off.
func (g *Gateway) undecided() {
	if g.opts.Peers == nil {
		return
	}
	for _, chat := range g.opts.Peers.List() {
		for _, m := range g.opts.Peers.Messages(chat) {
			if m.Own && m.Mail == nil && !m.Deleted && !g.drafts.holds(m.ID) {
				g.undecidedOne(m)
			}
		}
	}
}

func (g *Gateway) undecidedOne(m peerchat.Message) {
	d := peerDraft(m, m.Content)
	switch card := feishu.CardID(m.Content); {
	case card == "" && d.ready():
		g.count(countedDraft)
		g.drafts.add(d)
	case card != "" && g.drafts.onCard(card, func(*draft) {}):
		g.bind(d, card) // without its draft nobody here knows its text
	}
}

// draftAgain makes a draft of a message that the bot changes so late that its draft was given up, or after that was
// published; false where there is no such message.
func (g *Gateway) draftAgain(m peerchat.Message, found bool, content string) bool {
	if !found || m.Deleted {
		return false
	}
	d := peerDraft(m, content)
	d.Patched = true
	g.count(countedDraft)
	g.drafts.add(d)
	return true
}

// peerDraft is a draft, as of now, of a message of the bot in a chat with another agent.
func peerDraft(m peerchat.Message, content string) *draft {
	now := time.Now()
	d := &draft{Message: feishu.Message{ID: m.ID, ChatID: m.Chat, ParentID: m.Parent, RootID: m.Root, Type: m.Type,
		Content: content, CreateTime: m.Created}, CardID: m.Card, Created: relay.MillisOf(now), Touched: relay.MillisOf(now)}
	if m.Type == typeCard {
		d.Card = newCard(content)
	}
	d.touch(now, false, false)
	return d
}

// types reports whether the sign that the bot types is on the message that m answers, in a chat with an agent: on the
// newest mail before m, where it is no reply. One that was forgotten does not count for ever.
func (g *Gateway) types(m *feishu.Message) bool {
	if g.opts.Peers == nil || !peerchat.IsID(m.ChatID) {
		return false
	}
	answered := []relay.MessageID{m.ParentID, m.RootID}
	for _, one := range g.opts.Peers.Messages(m.ChatID) {
		if one.ID == m.ID {
			break
		}
		if m.ParentID == "" && !one.Own {
			answered = []relay.MessageID{one.ID}
		}
	}
	return slices.ContainsFunc(answered, func(id relay.MessageID) bool {
		one, _ := g.opts.Peers.Message(id)
		return slices.ContainsFunc(one.Reactions, func(r peerchat.Reaction) bool {
			return r.Emoji == typingSign && time.Since(r.At.Time()) < typingFor
		})
	})
}

// says reports whether a call says something in a chat or changes it.
func (o op) says() bool { return o >= opCreate }

// kind is what is known of a chat. What is said in a chat with another agent goes to the host, as what is said in a
// group does.
func (g *Gateway) kind(chat relay.ChatID) string {
	switch {
	case !peerchat.IsID(chat):
		return g.opts.Book.Chat(chat).Kind
	case g.opts.Peers != nil:
		return feishu.ChatGroup
	}
	return feishu.ChatP2P // they are off by now
}
