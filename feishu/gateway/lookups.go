package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// Codes that mean "not found" or "no scope", and nothing else goes wrong: only
// they may be replaced (docs/feishu.md 6.2; contact codes as Feishu documents them).
var missing = []int{
	99991672, 99991679, // a scope is missing
	99992351, 99992352, 99992354, // open_id, user_id, message id not found
	41012, 41050, // user id invalid; no authority over the user
	feishu.CodeBotNotFound,
	230001, 230027, 230110, 231003, // message id invalid, no permission, deleted, not there
}

// lookUp answers for a peer or a message that only the bot was shown, where
// Feishu does not know it or may not tell, and only to our own app. nil: Feishu's
// answer stands.
func (g *Gateway) lookUp(ctx context.Context, t *tapped) []byte {
	var ans struct {
		Code *int                       `json:"code"`
		Data map[string]json.RawMessage `json:"data"`
	}
	if !g.own.trusts(t.token) {
		return nil // ids of another app's name space
	}
	notFound := t.status == http.StatusNotFound
	data := map[string]json.RawMessage{}
	if json.Unmarshal(t.answer, &ans) == nil && ans.Code != nil {
		notFound = slices.Contains(missing, *ans.Code)
		if *ans.Code == 0 {
			g.learnAnswer(t)
			notFound = true
			if ans.Data != nil {
				data = ans.Data
			}
		}
	}
	if !notFound {
		return nil
	}
	out := g.complete(t, data)
	if out == nil {
		return nil
	}
	if ours, _ := g.proven(ctx, t.token); !ours {
		return nil
	}
	g.count(countedLookupAnswered)
	return out
}

// complete adds what we know to the data of a look-up; nil when that is nothing.
func (g *Gateway) complete(t *tapped, data map[string]json.RawMessage) []byte {
	var ok bool
	switch t.op {
	case opBots:
		ok = g.completeBots(t, data)
	case opUser:
		ok = g.completeUser(t, data)
	case opMessage:
		ok = g.completeMessages(t, []relay.MessageID{t.message}, data)
	case opMessages:
		var ids []relay.MessageID
		for _, id := range feishu.Listed(t.http.URL.Query(), "message_ids") {
			ids = append(ids, relay.MessageID(id))
		}
		ok = g.completeMessages(t, ids, data)
	}
	if t.ours != "" {
		ok = g.completePeers(t, data) || ok
	}
	if !ok {
		return nil
	}
	out, err := relay.Marshal(map[string]any{"code": 0, "msg": "success", "data": data})
	if err != nil {
		return nil
	}
	return out
}

// completeBots is GET bot/v3/bots/basic_batch.
func (g *Gateway) completeBots(t *tapped, data map[string]json.RawMessage) bool {
	bots, failed := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if len(data) > 0 {
		_ = json.Unmarshal(data["bots"], &bots) // a null or strange map is as none
		_ = json.Unmarshal(data["failed_bots"], &failed)
	}
	if bots == nil {
		bots = map[string]json.RawMessage{}
	}
	if failed == nil {
		failed = map[string]json.RawMessage{}
	}
	ours := false
	for _, id := range feishu.Listed(t.http.URL.Query(), "bot_ids") {
		if _, there := bots[id]; there || t.ours != "" && peerchat.IsID(id) {
			continue
		}
		var why struct {
			Code int `json:"code"`
		}
		if raw, said := failed[id]; said && (json.Unmarshal(raw, &why) != nil || !slices.Contains(missing, why.Code)) {
			continue
		}
		peer, known := g.opts.Host.Peer(relay.OpenID(id))
		if !known {
			if len(data) == 0 {
				failed[id], _ = relay.Marshal(feishu.NoBot())
			}
			continue
		}
		bots[id], _ = relay.Marshal(feishu.ShownBot(id, peer.Name))
		delete(failed, id)
		ours = true
	}
	data["bots"], _ = relay.Marshal(bots)
	data["failed_bots"], _ = relay.Marshal(failed)
	return ours
}

// completeUser is GET contact/v3/users/{id}: some frameworks ask for the name of
// a bot there.
func (g *Gateway) completeUser(t *tapped, data map[string]json.RawMessage) bool {
	if len(data) > 0 {
		return false
	}
	peer, ok := g.opts.Host.Peer(relay.OpenID(t.user))
	if !ok {
		return false
	}
	data["user"], _ = relay.Marshal(feishu.ShownUser(t.user, peer.Name))
	return true
}

// completeMessages is GET im/v1/messages/{id} and mget.
func (g *Gateway) completeMessages(t *tapped, ids []relay.MessageID, data map[string]json.RawMessage) bool {
	var items []json.RawMessage
	if len(data) > 0 && json.Unmarshal(data["items"], &items) != nil {
		return false
	}
	there := map[relay.MessageID]bool{}
	for _, raw := range items {
		var item struct {
			ID relay.MessageID `json:"message_id"`
		}
		_ = json.Unmarshal(raw, &item) // an item without an id is not ours
		there[item.ID] = true
	}
	if t.op == opMessage && len(items) > 0 {
		return false
	}
	ours := false
	for _, id := range ids {
		m, ok := g.opts.Host.Injected(id)
		if !ok || there[id] {
			continue
		}
		raw, err := relay.Marshal(g.shown(&m, t.http.URL.Query().Has("user_id_type")))
		if err != nil {
			continue
		}
		items, ours = append(items, raw), true
		there[id] = true
	}
	data["items"], _ = relay.Marshal(items)
	return ours
}

// shown is a message as the REST API shows it. byApp: bots among
// the mentions are named by app id, as Feishu does when the caller says which
// user_id_type it wants (docs/feishu.md 4.1).
func (g *Gateway) shown(m *feishu.Message, byApp bool) map[string]any {
	sender := feishu.ShownSender(m.Sender.OpenID, "open_id", feishu.SenderUser)
	switch {
	case m.Sender.AppID != "":
		sender = feishu.ShownSender(m.Sender.AppID, "app_id", feishu.SenderApp)
	case m.Sender.IsBot():
		sender["sender_type"] = feishu.SenderApp
	}
	self := g.opts.Book.Self()
	var mentions []any
	for _, n := range m.Mentions {
		shown := map[string]any{"key": n.Key, "id": n.OpenID, "id_type": "open_id", "name": n.Name}
		app := n.AppID
		if n.OpenID != "" && n.OpenID == self.OpenID {
			app = g.own.app()
		}
		if app != "" && (byApp || n.OpenID == "") {
			shown["id"], shown["id_type"] = app, "app_id"
		}
		mentions = append(mentions, shown)
	}
	out := feishu.ShownMessage(m, m.CreateTime, sender)
	if mentions != nil {
		out["mentions"] = mentions
	}
	return out
}

// learnAnswer learns the bots that a successful look-up names.
func (g *Gateway) learnAnswer(t *tapped) {
	switch t.op {
	case opBots:
		var ans struct {
			Data struct {
				Bots map[relay.OpenID]struct {
					Name string `json:"name"`
				} `json:"bots"`
			} `json:"data"`
		}
		if json.Unmarshal(t.answer, &ans) != nil {
			return
		}
		for id, b := range ans.Data.Bots {
			g.opts.Book.LearnBot(feishu.Bot{OpenID: id, Name: b.Name})
		}
	case opMessage, opMessages:
		if items, err := feishu.ParseHistory(t.answer); err == nil {
			for _, m := range items {
				g.opts.Book.LearnMentions(m.Mentions)
			}
		}
	}
}
