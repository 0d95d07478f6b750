package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// tapTime is how long the host may take to decide on an event: a little less than [feishu.AckHold], after which the
// event passes.
const tapTime = feishu.AckHold - 200*time.Millisecond

// tapEvent decides on an event before the bot gets it ([feishu.EventTap]).
func (g *Gateway) tapEvent(data []byte) (v feishu.Verdict, instead []byte) {
	defer g.caught("event") // which leaves Pass: the bot comes first
	ev, err := feishu.ParseEvent(data)
	if err != nil || !g.own.is(ev.AppID) {
		return feishu.Pass, nil
	}
	g.opts.Book.LearnSelf(feishu.Self{Tenant: ev.TenantKey})
	switch ev.Type {
	case feishu.EventBotAdded:
		g.sawChat(ev.ChatID, feishu.ChatGroup)
		g.joined(ev.ChatID, ev.CreateTime)
	case feishu.EventBotDeleted, feishu.EventDisbanded:
		g.left(ev.ChatID, ev.CreateTime)
	case feishu.EventRecalled:
		if ev.Recall != nil {
			g.Forget(ev.Recall.ID)
			g.recalled(ev.ChatID, ev.Recall.ID, ev.Recall.At)
		}
	case feishu.EventReacted, feishu.EventReactionEnded:
		if r := ev.Reaction; r != nil && r.ByApp && g.opts.Host.OwnReaction(r.ID, r.Emoji) {
			return feishu.Keep, nil
		}
	}
	if ev.Message == nil || ev.Message.ID == "" || ev.Message.ChatID == "" {
		return feishu.Pass, nil
	}
	return g.heard(ev, data)
}

func (g *Gateway) heard(ev feishu.Event, data []byte) (feishu.Verdict, []byte) {
	m := *ev.Message
	if g.ownMessage(&m) {
		return feishu.Pass, nil
	}
	g.sawChat(m.ChatID, m.ChatType)
	if m.ChatType == feishu.ChatGroup {
		g.joined(m.ChatID, m.CreateTime)
	}
	g.recent.chats.Add(m.ID, m.ChatID)
	g.opts.Book.LearnMentions(m.Mentions)
	if !m.Sender.IsBot() {
		return g.hear(m, data)
	}
	g.opts.Book.LearnBot(feishu.Bot{OpenID: m.Sender.OpenID, AppID: m.Sender.AppID, Name: m.Sender.Name})
	if m.ChatType == feishu.ChatP2P {
		return feishu.Pass, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tapTime)
	defer cancel()
	if err := g.opts.Host.Native(ctx, m, ev.Streaming); err != nil {
		g.count(countedNativeRefused)
		g.log.Warn("another bot's message cannot be stored; Feishu will deliver it again", "chat", m.ChatID,
			"message_id", m.ID, "err", err)
		return feishu.Refuse, nil
	}
	g.count(countedNative)
	return feishu.Keep, nil
}

// passedUnseen reports to the host a message that the bot got before [Gateway.tapEvent] decided on it.
func (g *Gateway) passedUnseen(data []byte) {
	ev, err := feishu.ParseEvent(data)
	if err == nil && g.own.is(ev.AppID) && ev.Message != nil {
		g.opts.Host.Passed(ev.Message.ID)
	}
}

// ownMessage reports whether m is the bot's own, also while its open_id is not
// known yet.
func (g *Gateway) ownMessage(m *feishu.Message) bool {
	self := g.opts.Book.Self()
	if m.Sender.OpenID != "" && m.Sender.OpenID == self.OpenID || g.own.is(m.Sender.AppID) {
		return true
	}
	out := g.recent.sent.Contains(m.ID)
	return out || g.drafts.holds(m.ID)
}

// hear has the host commit a person's message. Without an answer the message passes.
func (g *Gateway) hear(m feishu.Message, event []byte) (v feishu.Verdict, instead []byte) {
	group := m.ChatType == feishu.ChatGroup
	ctx, cancel := context.WithTimeout(context.Background(), tapTime)
	defer cancel()
	p, err := g.opts.Host.Heard(ctx, m, event)
	switch {
	case err != nil:
		g.heardError(&m, err)
		return p.Verdict, nil
	case !group:
	case p.Verdict != feishu.Pass:
		g.count(countedWithheld)
		return p.Verdict, nil
	case p.Before != "":
		if instead, err = feishu.WithBefore(event, p.Before); err != nil {
			g.log.Debug("a person's message passes without its context", "chat", m.ChatID,
				"message_id", m.ID, "err", err)
		}
	}
	return feishu.Pass, instead
}

func (g *Gateway) heardError(m *feishu.Message, err error) {
	g.count(countedHeardError)
	g.log.Warn("a person's message cannot be recorded", "chat", m.ChatID, "message_id", m.ID, "err", err)
}

func (g *Gateway) sawChat(id relay.ChatID, kind string) {
	if id == "" {
		return
	}
	was := g.opts.Book.Chat(id).Kind
	g.opts.Book.SawChat(id, kind)
	if was == "" && kind != "" {
		g.drafts.retry(id)
	}
}

func (g *Gateway) joined(id relay.ChatID, at relay.Millis) {
	defer g.caught("joined")
	if id != "" {
		g.opts.Host.Joined(id, at)
	}
}

// Forget drops the draft of a recalled message. The message is not published later.
func (g *Gateway) Forget(id relay.MessageID) {
	g.recent.gone.Add(id, struct{}{})
	if g.drafts.drop(id) {
		g.count(countedDraftRecalled)
	}
}

func (g *Gateway) recalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	defer g.caught("recalled")
	g.opts.Host.Recalled(chat, id, at)
}

// left records that the bot is no longer in a chat.
func (g *Gateway) left(id relay.ChatID, at relay.Millis) {
	defer g.caught("left")
	if id == "" {
		return
	}
	g.opts.Book.LeftChat(id)
	g.opts.Host.Left(id, at)
}

// missing are the codes of answers that mean "not found" or "no scope". Only these are replaced (docs/feishu.md 6.2;
// contact codes as Feishu documents them).
var missing = []int{
	99991672, 99991679, // a scope is missing
	99992351, 99992352, 99992354, // open_id, user_id, message id not found
	41012, 41050, // user id invalid; no authority over the user
	feishu.CodeBotNotFound,
	230001, 230027, 230110, 231003, // message id invalid, no permission, deleted, not there
}

// lookUp completes Feishu's answer to a look-up with peers and messages that only the bot was shown, if Feishu does not
// know them or the bot lacks the scope. It does so only for a token of this app. nil: Feishu's answer is passed on.
func (g *Gateway) lookUp(ctx context.Context, t *tapped) []byte {
	if !g.own.trusts(t.token) {
		return nil // ids of another app's name space
	}
	answer, err := feishu.ReadAnswer[json.RawMessage](t.answer)
	code := feishu.CodeOf(err)
	switch {
	case err == nil:
		g.learnAnswer(t)
	case code != 0 && !slices.Contains(missing, code), code == 0 && t.status != http.StatusNotFound:
		return nil
	}
	out := g.complete(t, members(answer))
	if out == nil {
		return nil
	}
	if ours, _ := g.proven(ctx, t.token); !ours {
		return nil
	}
	g.count(countedLookupAnswered)
	return out
}

// members are those of a JSON object. What is no object has none.
func members(object json.RawMessage) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil || all == nil {
		return map[string]json.RawMessage{}
	}
	return all
}

// complete adds what the sidecar knows to the data of a look-up; nil if it knows nothing.
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
	out, _ := relay.Marshal(map[string]any{"code": 0, "msg": "success", "data": data}) // of JSON; it never fails
	return out
}

// completeBots is GET bot/v3/bots/basic_batch.
func (g *Gateway) completeBots(t *tapped, data map[string]json.RawMessage) bool {
	bots, failed, ours := members(data["bots"]), members(data["failed_bots"]), false
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
		raw, _ := relay.Marshal(g.shown(&m, t.http.URL.Query().Has("user_id_type")))
		items, ours, there[id] = append(items, raw), true, true
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
		answer, _ := feishu.ReadAnswer[struct {
			Bots map[relay.OpenID]struct {
				Name string `json:"name"`
			} `json:"bots"`
		}](t.answer) // it is known to be a success
		for id, b := range answer.Bots {
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
