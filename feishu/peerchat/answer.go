package peerchat

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

const (
	uuidFor  = time.Hour // one uuid sends one message
	maxPage  = 50        // messages of the history that one call gets
	typeCard = "interactive"
)

// What a call is refused with (docs/feishu.md 6.2).
var (
	errToken    = &feishu.CodeError{Code: 99991663, Msg: "Invalid access token for authorization."}
	errField    = &feishu.CodeError{Code: 99992402, Msg: "field validation failed"}
	errUnknown  = &feishu.CodeError{Code: 230001, Msg: "A parameter of the request is invalid, ext=invalid id"}
	errRecalled = &feishu.CodeError{Code: 230011, Msg: "The message was withdrawn."}
	// errDisk is as an internal error of Feishu's.
	errDisk = &feishu.CodeError{Code: 230050, Msg: "The message cannot be kept now; try again."}
)

// Answer answers a call, whose body was read. A caller that was not proven to be the bot is refused.
func (c *Chats) Answer(r *http.Request, body []byte, proven bool) (status int, answer []byte) {
	data, err := any(nil), error(errToken)
	if proven {
		data, err = c.do(r, body)
	}
	status, why := http.StatusOK, &feishu.CodeError{Msg: "success"}
	if err != nil {
		status, data = http.StatusBadRequest, nil
		if refused, ok := errors.AsType[*feishu.CodeError](err); ok {
			why = refused
		} else {
			c.opts.Logger.Error("a message to an agent cannot be kept", "err", err)
			why = errDisk
		}
	}
	if data == nil {
		data = map[string]any{}
	}
	answer, _ = relay.Marshal(map[string]any{"code": why.Code, "msg": why.Msg, "data": data}) // it never fails for these
	return status, answer
}

// call is a call and what it is about: a chat, and a message in it.
type call struct {
	*Chats
	r     *http.Request
	path  string // below /open-apis/
	ids   []string
	about *Message // of the path, or whose card it is; nil: the chat only
	chat  relay.ChatID
	peer  relay.AgentName
	body  struct {
		MsgType string          `json:"msg_type"`
		Content json.RawMessage `json:"content"`
		UUID    string          `json:"uuid"`
	}
}

// do answers what is read from memory, and takes everything else: a content is a message of the bot.
func (c *Chats) do(r *http.Request, body []byte) (any, error) {
	one := &call{Chats: c, r: r, ids: named(r, body)}
	one.path, _ = feishu.Below(r.URL.Path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.locate(); one.peer == "" || strings.Contains(one.path, "/resources/") {
		return nil, errUnknown
	}
	if r.Method == http.MethodGet {
		return one.read(), nil
	}
	if len(body) > 0 && json.Unmarshal(body, &one.body) != nil || len(body) == 0 && r.ContentLength > 0 {
		return nil, errField
	}
	switch m := one.about; {
	case m != nil && m.Deleted:
		return nil, errRecalled
	case m != nil && strings.HasSuffix(one.path, "/id_convert"):
		changed := *m
		changed.Card = cmp.Or(m.Card, "7"+random()) // no card of Feishu's has letters
		return map[string]any{"card_id": changed.Card}, c.replace(m, changed)
	case m != nil && m.Own && r.Method == http.MethodDelete && !strings.Contains(one.path, "/reactions"):
		changed := *m
		changed.Deleted, changed.Content, changed.Updated = true, "", relay.MillisOf(time.Now())
		return nil, c.replace(m, changed)
	case len(one.body.Content) > 0 && !strings.HasPrefix(one.path, "cardkit/"):
		return one.write()
	}
	return map[string]any{"reaction_id": random()}, nil // which only a reaction has
}

func random() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return mark + hex.EncodeToString(id)
}

// locate finds out what the call is about.
func (c *call) locate() {
	_, card, _ := strings.Cut(c.path, "cardkit/v1/cards/")
	card, _, _ = strings.Cut(card, "/")
	for _, m := range c.all {
		switch {
		case slices.Contains(c.ids, string(m.ID)), card != "" && m.Card == card:
			c.about, c.chat, c.peer = m, m.Chat, m.Peer
			return
		case slices.Contains(c.ids, string(m.Chat)), slices.Contains(c.ids, string(c.User(m.Peer))):
			c.chat, c.peer = m.Chat, m.Peer
		}
	}
}

// write makes a message of a content, or changes one of the bot.
func (c *call) write() (any, error) {
	m, text := c.about, string(c.body.Content)
	_ = json.Unmarshal(c.body.Content, &text) // JSON in a string; the oldest calls have it as it is
	if m != nil && m.Own && c.r.Method != http.MethodPost {
		changed := *m
		changed.Type, changed.Content = cmp.Or(c.body.MsgType, m.Type), text
		changed.Updated = relay.MillisOf(time.Now())
		if err := c.replace(m, changed); err != nil {
			return nil, err
		}
		return c.shown(m), nil
	}
	if c.body.MsgType == "" || !json.Valid([]byte(text)) {
		return nil, errUnknown
	}
	for _, was := range c.in(c.chat) {
		if c.body.UUID != "" && was.UUID == c.body.UUID && was.Own && time.Since(was.Created.Time()) < uuidFor {
			return c.shown(was), nil
		}
	}
	said := Message{ID: relay.MessageID("om_" + random()), Chat: c.chat, Peer: c.peer, Own: true,
		Type: c.body.MsgType, Content: text, UUID: c.body.UUID}
	if m != nil {
		said.Parent, said.Root = m.ID, cmp.Or(m.Root, m.ID)
	}
	if said.Type == typeCard {
		said.Card = feishu.CardID(text)
	}
	if err := c.add(&said); err != nil {
		return nil, err
	}
	c.opts.Trace("kept")
	return c.shown(&said), nil
}

// read returns what the call may want to know: the messages that it names or lists, or all of the chat and its members.
func (c *call) read() map[string]any {
	query, items := c.r.URL.Query(), []any{}
	switch {
	case c.about != nil && strings.HasSuffix(c.path, "/reactions"):
	case c.about != nil:
		for _, id := range c.ids {
			if m := c.find(relay.MessageID(id)); m != nil {
				items = append(items, c.shown(m))
			}
		}
	case query.Has("container_id"): // the chat's history (docs/feishu.md 5.3): its end
		all := c.in(c.chat)
		for _, m := range all[max(0, len(all)-maxPage):] {
			items = append(items, c.shown(m))
		}
		if query.Get("sort_type") == "ByCreateTimeDesc" {
			slices.Reverse(items)
		}
	default:
		return c.members()
	}
	return map[string]any{"items": items, "has_more": false, "page_token": ""}
}

// members are the chat, and its members in the forms of all calls that ask for people, members or bots.
func (c *call) members() map[string]any {
	self, items, bots := c.opts.Self(), []any{}, map[string]any{}
	for _, m := range c.all {
		id, name := string(c.User(m.Peer)), string(m.Peer)
		if bots[id] != nil || !slices.Contains(c.ids, id) && m.Chat != c.chat {
			continue
		}
		user := feishu.ShownUser(id, name) // in a list of people, of members, and of bots, which is this one
		user["member_id_type"], user["member_id"] = "open_id", id
		user["bot_id"], user["bot_name"] = self.OpenID, self.Name
		items, bots[id] = append(items, user), feishu.ShownBot(id, name)
	}
	return map[string]any{"items": items, "has_more": false, "page_token": "", "member_total": 1, "bots": bots,
		"failed_bots": map[string]any{}, "user": items[0], "is_in_chat": true, "name": c.peer, "description": "",
		"avatar": "", "chat_mode": feishu.ChatP2P, "chat_type": "private", "chat_tag": "inner", "external": false,
		"chat_status": "normal", "user_count": "1", "bot_count": "1"}
}

// shown is a message as the REST API shows it.
func (c *call) shown(m *Message) map[string]any {
	self := c.opts.Self()
	sender, name := feishu.ShownSender(self.AppID, "app_id", feishu.SenderApp), self.Name
	if !m.Own {
		senderType := feishu.SenderApp
		if c.opts.SenderType == feishu.SenderUser {
			senderType = feishu.SenderUser
		}
		sender, name = feishu.ShownSender(c.User(m.Peer), "open_id", senderType), string(m.Peer)
	}
	if c.r.URL.Query().Get("with_sender_name") == "true" {
		sender["sender_name"] = name
	}
	content := m.Content
	if m.Deleted {
		content = "This message was recalled"
	}
	return feishu.ShownMessage(&feishu.Message{ID: m.ID, RootID: m.Root, ParentID: m.Parent, ChatID: m.Chat, Type: m.Type,
		Content: content, CreateTime: m.Created, Deleted: m.Deleted}, m.Updated, sender)
}
