package gateway

import (
	"context"
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
func (g *Gateway) answerPeer(w http.ResponseWriter, t *call) {
	proven, err := g.proven(t.http.Context(), t.token)
	switch {
	case err != nil: // Feishu does not answer; the token may be valid
		g.unreachable(w, t.http, err)
		return
	case t.cut && len(t.request) > 0: // it is longer than any message that Feishu takes
		feishu.Fail(w, http.StatusBadRequest, codeField, "the call is too long for a message")
		return
	case t.cut: // too many are being read
		w.Header().Set("X-Ogw-Ratelimit-Reset", "1") // in seconds (docs/feishu.md 6.3)
		feishu.Fail(w, http.StatusTooManyRequests, codeGateway, "the call cannot be read now; make it again")
		return
	}
	g.count("peer_answered")
	if t.status, t.answer = g.opts.Peers.Answer(t.http, t.request, proven); t.read != nil {
		g.record(t)
	}
	reply(w, t.status, t.answer)
}

// undecided makes drafts of messages to other agents that the bot was told are sent, of which the host has recorded
// nothing and for which there is no draft: an earlier run was killed before it had one on disk, or dropped it while the
// chats were switched off.
func (g *Gateway) undecided(ctx context.Context) {
	if g.opts.Peers == nil {
		return
	}
	for _, m := range g.opts.Peers.Undecided() {
		if time.Since(m.Updated.Time()) < draftLife && !g.drafts.holds(m.ID) {
			d := &draft{Message: feishu.Message{ID: m.ID, ChatID: m.Chat, ParentID: m.Parent, RootID: m.Root, Type: m.Type,
				CreateTime: m.Created}}
			d.write(m.Content, d.Message)
			g.keepSent(ctx, d)
		}
	}
}

// reply answers a call with JSON.
func reply(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the bot may have gone
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
