package gateway

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strings"
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
	_, card := g.opts.Peers.WithCard(t.card)
	return card || peerchat.Named(t.http, body)
}

// mayNamePeer reports whether the body of a call has to be read, since it may name a chat with another agent.
// Uploads name none.
func (g *Gateway) mayNamePeer(r *http.Request) bool {
	if g.opts.Peers == nil || r.Body == nil || r.Body == http.NoBody {
		return false
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return !strings.HasPrefix(kind, "multipart/")
}

// peering answers the calls for chats with other agents in the place of Feishu.
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
	p.g.count(countedPeerAnswered)
	resp := p.g.opts.Peers.Answer(t.http, t.request, p.g.proven(ctx, t.token))
	resp.Request = r
	return resp, nil
}

// draftAgain makes a draft of a message that the bot changes so late that its draft was given up, or after that was
// published; false where there is no such message.
func (g *Gateway) draftAgain(m peerchat.Message, found bool, content string) bool {
	if !found || g.recent.gone.Contains(m.ID) {
		return false
	}
	now := time.Now()
	d := &draft{Message: feishu.Message{ID: m.ID, ChatID: m.Chat, ParentID: m.Parent, RootID: m.Root, Type: m.Type,
		Content: content, CreateTime: m.Created}, CardID: m.Card, Created: relay.MillisOf(now), Touched: relay.MillisOf(now)}
	if m.Type == typeCard {
		d.Card, d.Patched = newCard(content), true
	}
	d.touch(now, false, false)
	g.count(countedDraft)
	g.drafts.add(d)
	return true
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
