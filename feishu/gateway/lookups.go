package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// object is a JSON object.
type object = map[string]any

// lookUp answers a look-up if it asks only for bots and messages that this bot was shown, and reports whether it does:
// Feishu may not know them, or not show them to this app. Only a token of this app gets them.
func (g *Gateway) lookUp(w http.ResponseWriter, t *call) bool {
	defer g.caught("look-up")
	if t.shown == nil {
		return false
	}
	data := t.shown(t)
	if data == nil {
		return false
	}
	if ours, _ := g.proven(t.http.Context(), t.token); !ours {
		return false
	}
	g.count("lookup_answered")
	body, _ := relay.Marshal(object{"code": 0, "msg": "success", "data": data}) // it never fails for maps and texts
	reply(w, http.StatusOK, body)
	return true
}

// shownBots is GET bot/v3/bots/basic_batch.
func (g *Gateway) shownBots(t *call) object {
	bots := object{}
	for _, id := range listed(t.http.URL.Query(), "bot_ids") {
		peer, ok := g.opts.Host.Peer(relay.OpenID(id))
		if !ok {
			return nil
		}
		bots[id] = feishu.ShownBot(id, peer.Name)
	}
	return object{"bots": bots, "failed_bots": object{}}
}

// shownUser is GET contact/v3/users/{id}, where OpenClaw asks for the name of every sender.
func (g *Gateway) shownUser(t *call) object {
	id := t.path.PathValue("user")
	peer, ok := g.opts.Host.Peer(relay.OpenID(id))
	if !ok {
		return nil
	}
	return object{"user": feishu.ShownUser(id, peer.Name)}
}

// shownMessages is GET im/v1/messages/{id} and mget.
func (g *Gateway) shownMessages(t *call) object {
	query := t.http.URL.Query()
	ids := listed(query, "message_ids")
	if one := t.path.PathValue("message"); one != "" {
		ids = []string{one}
	}
	var items []any
	for _, id := range ids {
		m, ok := g.opts.Host.Injected(relay.MessageID(id))
		if !ok {
			return nil
		}
		items = append(items, g.shownMessage(&m, query.Has("user_id_type")))
	}
	return object{"items": items}
}

// shownMessage is a message as the REST API shows it. byApp: bots among the mentions are named by app id, as Feishu
// does for callers that say which user_id_type they want (docs/feishu.md 4.1).
func (g *Gateway) shownMessage(m *feishu.Message, byApp bool) object {
	sender := feishu.ShownSender(m.Sender.OpenID, "open_id", feishu.SenderUser)
	switch {
	case m.Sender.AppID != "":
		sender = feishu.ShownSender(m.Sender.AppID, "app_id", feishu.SenderApp)
	case m.Sender.IsBot():
		sender["sender_type"] = feishu.SenderApp
	}
	out := feishu.ShownMessage(m, m.CreateTime, sender)
	var mentions []any
	for _, n := range m.Mentions {
		id, idType := string(n.OpenID), "open_id"
		if n.OpenID == g.opts.Book.Self().OpenID {
			n.AppID = g.opts.Book.Self().AppID
		}
		if n.AppID != "" && (byApp || id == "") {
			id, idType = n.AppID, "app_id"
		}
		mentions = append(mentions, object{"key": n.Key, "id": id, "id_type": idType, "name": n.Name})
		out["mentions"] = mentions
	}
	return out
}

// listed are the values of a repeated query parameter, as SDKs write them: a=1&a=2, a[]=1&a[]=2, a=1,2.
// Without any they are one empty text.
func listed(q url.Values, name string) []string {
	return strings.Split(strings.Join(slices.Concat(q[name], q[name+"[]"]), ","), ",")
}
