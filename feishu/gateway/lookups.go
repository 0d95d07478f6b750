package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// object is a JSON object.
type object = map[string]json.RawMessage

// lookUp completes Feishu's answer to a look-up with bots and messages that only this bot was shown, if Feishu does not
// return them. complete adds them to the data of the answer, and reports whether there are any. Only a token of this
// app gets them.
func (g *Gateway) lookUp(complete func(*call, object) bool) func(*call) {
	return func(t *call) {
		answer, err := feishu.ReadAnswer[json.RawMessage](t.answer)
		if err == nil && g.knows(t.token) {
			g.learnAnswer(t)
		}
		if err != nil && feishu.CodeOf(err) == 0 && t.status != http.StatusNotFound {
			return // a fault of Feishu's
		}
		data := members(answer)
		if !complete(t, data) {
			return
		}
		if ours, _ := g.proven(context.Background(), t.token); ours {
			g.count("lookup_answered")
			// It never fails for JSON.
			t.instead, _ = relay.Marshal(map[string]any{"code": 0, "msg": "success", "data": data})
		}
	}
}

// members are those of a JSON object. What is no object has none.
func members(data json.RawMessage) object {
	var all object
	if json.Unmarshal(data, &all) != nil || all == nil {
		return object{}
	}
	return all
}

// completeBots is GET bot/v3/bots/basic_batch.
func (g *Gateway) completeBots(t *call, data object) (ours bool) {
	bots, failed, none := members(data["bots"]), members(data["failed_bots"]), len(data) == 0
	for _, id := range listed(t.http.URL.Query(), "bot_ids") {
		if _, there := bots[id]; there {
			continue
		}
		if peer, known := g.opts.Host.Peer(relay.OpenID(id)); known {
			bots[id], _ = relay.Marshal(feishu.ShownBot(id, peer.Name))
			delete(failed, id)
			ours = true
		} else if none {
			failed[id] = json.RawMessage(`{"code":20002,"reason":"bot not found"}`) // docs/feishu.md 4.2
		}
	}
	data["bots"], _ = relay.Marshal(bots)
	data["failed_bots"], _ = relay.Marshal(failed)
	return ours
}

// completeUser is GET contact/v3/users/{id}, where OpenClaw asks for the name of every sender.
func (g *Gateway) completeUser(t *call, data object) bool {
	id := t.path.PathValue("user")
	peer, ok := g.opts.Host.Peer(relay.OpenID(id))
	if !ok || len(data) > 0 {
		return false
	}
	data["user"], _ = relay.Marshal(feishu.ShownUser(id, peer.Name))
	return true
}

// completeMessages is GET im/v1/messages/{id} and mget.
func (g *Gateway) completeMessages(t *call, data object) (ours bool) {
	ids := listed(t.http.URL.Query(), "message_ids")
	if t.message != "" {
		ids = []string{string(t.message)}
	}
	var items []json.RawMessage
	there := map[string]bool{}
	if len(data) > 0 && json.Unmarshal(data["items"], &items) != nil {
		return false
	}
	for _, raw := range items {
		var item struct {
			ID string `json:"message_id"`
		}
		_ = json.Unmarshal(raw, &item) // an item without an id is not ours
		there[item.ID] = true
	}
	for _, id := range ids {
		if m, ok := g.opts.Host.Injected(relay.MessageID(id)); ok && !there[id] {
			raw, _ := relay.Marshal(g.shown(&m, t.http.URL.Query().Has("user_id_type")))
			items, ours, there[id] = append(items, raw), true, true
		}
	}
	data["items"], _ = relay.Marshal(items)
	return ours
}

// shown is a message as the REST API shows it. byApp: bots among the mentions are named by app id, as Feishu does for
// callers that say which user_id_type they want (docs/feishu.md 4.1).
func (g *Gateway) shown(m *feishu.Message, byApp bool) map[string]any {
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
		mentions = append(mentions, map[string]any{"key": n.Key, "id": id, "id_type": idType, "name": n.Name})
	}
	if mentions != nil {
		out["mentions"] = mentions
	}
	return out
}

// learnAnswer learns the bots that a look-up returns.
func (g *Gateway) learnAnswer(t *call) {
	answer, _ := feishu.ReadAnswer[struct {
		Bots map[relay.OpenID]struct {
			Name string `json:"name"`
		} `json:"bots"`
	}](t.answer) // it is known to be a success
	for id, b := range answer.Bots {
		g.opts.Book.LearnBot(feishu.Bot{OpenID: id, Name: b.Name})
	}
	items, _ := feishu.ParseHistory(t.answer)
	for _, m := range items {
		g.opts.Book.LearnMentions(m.Mentions)
	}
}

// listed are the values of a repeated query parameter, as SDKs write them: a=1&a=2, a[]=1&a[]=2, a=1,2.
func listed(q url.Values, name string) (out []string) {
	for _, v := range slices.Concat(q[name], q[name+"[]"]) {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}
