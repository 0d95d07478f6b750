package gateway

import (
	"context"
	"io"
	"net/http"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// namesPeer reports whether a call is one for a chat with another agent, as far as its body was read. A message whose
// receiver cannot be read is one, too: it is refused.
func (g *Gateway) namesPeer(t *call) bool {
	_, card := g.opts.Peers.WithCard(t.path.PathValue("card"))
	return card || t.cut && t.sends || peerchat.Named(t.http, t.request)
}

// answerPeer answers a call for a chat with another agent.
func (g *Gateway) answerPeer(t *call, r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, err := io.Copy(io.Discard, r.Body) // what is too long to be read is refused
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), hostWait)
	defer cancel()
	proven, err := g.proven(ctx, t.token)
	if err != nil {
		return nil, err // Feishu does not answer; the token may be valid
	}
	resp := peerchat.TooMany(r)
	if !t.cut {
		g.count("peer_answered")
		resp = g.opts.Peers.Answer(t.http, t.request, proven)
	}
	resp.Request = r
	return resp, nil
}

// undecided makes drafts of messages to other agents that the bot was told are sent and that the host has not recorded,
// since an earlier run was killed before it had the draft on disk, or the chats were switched off.
func (g *Gateway) undecided() {
	if g.opts.Peers == nil {
		return
	}
	for _, chat := range g.opts.Peers.List() {
		for _, m := range g.opts.Peers.Messages(chat) {
			if !m.Own || m.Mail != nil || m.Deleted || g.drafts.holds(m.ID) {
				continue
			}
			d := &draft{Message: fromPeers(m), Created: relay.MillisOf(time.Now())}
			switch {
			case m.Card != "": // without its draft its text is unknown
				g.drafts.change("", m.Card, func(made *draft) { made.Message = d.Message })
				continue
			case m.Type == typeCard:
				d.setCard(m.Content)
			}
			g.touch(d, false, false)
			g.drafts.all = append(g.drafts.all, d)
		}
	}
}

// fromPeers is a message of a chat with another agent.
func fromPeers(m peerchat.Message) feishu.Message {
	return feishu.Message{ID: m.ID, ChatID: m.Chat, ParentID: m.Parent, RootID: m.Root, Type: m.Type, Content: m.Content,
		CreateTime: m.Created}
}

// kind is what is known of a chat. What is said in a chat with another agent goes to the host, as what is said in a
// group does.
func (g *Gateway) kind(chat relay.ChatID) string {
	switch {
	case !peerchat.IsID(chat):
		return g.opts.Book.Chat(chat).Kind
	case g.opts.Peers != nil:
		return feishu.ChatGroup
	}
	return feishu.ChatP2P // they are switched off
}
