package peerchat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

// Bounds of what the bot says, as at Feishu (docs/feishu.md 5).
const (
	maxText = 150 << 10
	maxPost = 30 << 10 // of a post or card
	maxUUID = 50
	uuidFor = time.Hour
	maxPage = 50
)

// refusal is an answer with a code (docs/feishu.md 6.2).
type refusal struct {
	code int
	msg  string
}

func (e *refusal) Error() string { return strconv.Itoa(e.code) + ": " + e.msg }

var (
	errToken = &refusal{99991663, "Invalid access token for authorization. " +
		"Please make a request with token attached."}
	errField   = &refusal{99992402, "field validation failed"}
	errContent = &refusal{230001, "Your request contains an invalid request parameter, " +
		"ext=content is not a string in json format or does not fit msg_type."}
	errMessage  = &refusal{230001, "Your request contains an invalid request parameter, ext=invalid message_id"}
	errReceiver = &refusal{230001, "Your request contains an invalid request parameter, ext=invalid receive_id"}
	errUUID     = &refusal{230001, "Your request contains an invalid request parameter, ext=uuid is longer than 50"}
	errRecalled = &refusal{230011, "The message was withdrawn."}
	errNotOwner = &refusal{230017, "Bot is NOT the owner of the resource."}
	errTooLong  = &refusal{230025, "The length of the message content reaches its limit."}
	errType     = &refusal{230054, "This operation is not supported for this message type."}
	errReaction = &refusal{231001, "reaction type is invalid."}
	errReply    = &refusal{231003, "The message to reply is not found."}
	errNoSign   = &refusal{231007, "No permission to delete this reaction."}
	errNoChat   = &refusal{232006, "Your request specifies a chat_id which is invalid."}
	errFile     = &refusal{234003, "File not in msg."}
	errUser     = &refusal{41012, "user id invalid error"}
	errNoCard   = &refusal{200740, "card entity does not exist"}
	errDisk     = &refusal{230050, "The message cannot be kept now; try again."} // as an internal error of Feishu's
)

// call is a request for a chat of ours.
type call struct {
	*Chats
	r    *http.Request
	ids  map[string]string // of the path
	out  outgoing
	peer relay.AgentName // of the chat of the path
}

type handler func(*call) (data any, err error)

// routes are the calls that are answered.
var routes = feishu.NewRoutes(map[string]handler{
	"POST im/v1/messages":                                    create,
	"GET im/v1/messages":                                     list,
	"GET im/v1/messages/mget":                                several,
	"GET im/v1/messages/{message}":                           read,
	"PUT im/v1/messages/{message}":                           edit,
	"PATCH im/v1/messages/{message}":                         edit,
	"DELETE im/v1/messages/{message}":                        recall,
	"POST im/v1/messages/{message}/reply":                    reply,
	"POST im/v1/messages/{message}/reactions":                react,
	"GET im/v1/messages/{message}/reactions":                 reactions,
	"DELETE im/v1/messages/{message}/reactions/{reaction}":   unreact,
	"GET im/v1/messages/{message}/resources/{file}":          func(*call) (any, error) { return nil, errFile },
	"GET im/v1/chats/{chat}":                                 chat,
	"GET im/v1/chats/{chat}/members":                         members,
	"GET im/v1/chats/{chat}/members/bots":                    bots,
	"GET im/v1/chats/{chat}/members/is_in_chat":              isInChat,
	"GET contact/v3/users/batch":                             users,
	"GET contact/v3/users/{user}":                            user,
	"GET bot/v3/bots/basic_batch":                            basicBatch,
	"POST cardkit/v1/cards/id_convert":                       convert,
	"PUT cardkit/v1/cards/{card}":                            card,
	"PATCH cardkit/v1/cards/{card}/settings":                 card,
	"POST cardkit/v1/cards/{card}/batch_update":              card,
	"POST cardkit/v1/cards/{card}/elements":                  card,
	"PUT cardkit/v1/cards/{card}/elements/{element}":         card,
	"PATCH cardkit/v1/cards/{card}/elements/{element}":       card,
	"DELETE cardkit/v1/cards/{card}/elements/{element}":      card,
	"PUT cardkit/v1/cards/{card}/elements/{element}/content": card,
})

// Answer answers a call, whose body was read. A caller that was not proven to be the bot is refused.
func (c *Chats) Answer(r *http.Request, body []byte, proven bool) *http.Response {
	if c.opts.Closed {
		return TooMany(r)
	}
	data, err := any(nil), error(errToken)
	if proven {
		data, err = c.do(r, body)
	}
	if err == nil {
		return response(r, http.StatusOK, &refusal{0, "success"}, data)
	}
	no, refused := errors.AsType[*refusal](err)
	if !refused {
		c.opts.Logger.Error("a message to an agent cannot be kept", "err", err)
		no = errDisk
	}
	return response(r, http.StatusBadRequest, no, nil)
}

// TooMany is the answer to a call that cannot be taken now; the bot is to make it again.
func TooMany(r *http.Request) *http.Response {
	resp := response(r, http.StatusTooManyRequests, &refusal{99991400, "request trigger frequency limit"}, nil)
	resp.Header.Set("X-Ogw-Ratelimit-Reset", "1") // in seconds (docs/feishu.md 6.3)
	return resp
}

func response(r *http.Request, status int, why *refusal, data any) *http.Response {
	if data == nil {
		data = map[string]any{}
	}
	body, err := relay.Marshal(map[string]any{"code": why.code, "msg": why.msg, "data": data})
	if err != nil {
		panic(err) // maps, texts and numbers are always JSON
	}
	return &http.Response{Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}},
		Body:   io.NopCloser(bytes.NewReader(body))}
}

func (c *Chats) do(r *http.Request, body []byte) (any, error) {
	answer, ids, ok := routes.Match(r.Method, r.URL.Path)
	if !ok {
		if path, _ := feishu.Below(r.URL.Path); strings.HasPrefix(path, "im/v1/chats") {
			return nil, errNoChat
		}
		return nil, errMessage
	}
	one := &call{Chats: c, r: r, ids: ids}
	held := &c.disk
	switch {
	case r.Method == http.MethodGet:
		held = &c.mu // it only reads
	case r.Method != http.MethodDelete && ids["card"] == "" && json.Unmarshal(body, &one.out) != nil:
		return nil, errField
	}
	held.Lock()
	defer held.Unlock()
	if chat, ok := ids["chat"]; ok {
		messages := c.chats[relay.ChatID(chat)]
		if len(messages) == 0 {
			return nil, errNoChat
		}
		one.peer = messages[0].Peer
	}
	return answer(one)
}

func (c *call) query(name string) string { return c.r.URL.Query().Get(name) }

// message is the one of the path.
func (c *call) message(gone error) (*Message, error) {
	return c.there(relay.MessageID(c.ids["message"]), gone)
}

// there is a message that was not recalled.
func (c *call) there(id relay.MessageID, gone error) (*Message, error) {
	m := c.all[id]
	switch {
	case m == nil:
		return nil, gone
	case m.Deleted:
		return nil, errRecalled
	}
	return m, nil
}

// own is the bot's message of the path.
func (c *call) own() (*Message, error) {
	m, err := c.message(errMessage)
	if err == nil && !m.Own {
		err = errNotOwner
	}
	return m, err
}

// outgoing is the body of the calls that send or change a message.
type outgoing struct {
	ReceiveID string `json:"receive_id"`
	MsgType   string `json:"msg_type"`
	Content   string `json:"content"`
	UUID      string `json:"uuid"`
	Reaction  struct {
		Emoji string `json:"emoji_type"`
	} `json:"reaction_type"`
	MessageID relay.MessageID `json:"message_id"`
}

func create(c *call) (any, error) {
	for id, messages := range c.chats {
		peer := messages[0].Peer
		switch c.query("receive_id_type") {
		case "chat_id":
			if string(id) == c.out.ReceiveID {
				return c.send(Message{Chat: id, Peer: peer})
			}
		case "open_id":
			if string(c.User(peer)) == c.out.ReceiveID {
				return c.send(Message{Chat: id, Peer: peer})
			}
		}
	}
	return nil, errReceiver
}

func reply(c *call) (any, error) {
	to, err := c.message(errReply)
	if err != nil {
		return nil, err
	}
	return c.send(Message{Chat: to.Chat, Peer: to.Peer, Parent: to.ID, Root: cmp.Or(to.Root, to.ID)})
}

func (c *call) send(m Message) (any, error) {
	out := &c.out
	if len(out.UUID) > maxUUID {
		return nil, errUUID
	}
	now := time.Now()
	if out.UUID != "" {
		for _, was := range c.chats[m.Chat] {
			if was.UUID == out.UUID && was.Own && now.Sub(was.Created.Time()) < uuidFor {
				return c.shown(was), nil
			}
		}
	}
	m.Own, m.Type, m.Content, m.UUID = true, out.MsgType, out.Content, out.UUID
	if err := checkContent(m.Type, m.Content); err != nil {
		return nil, err
	}
	m.ID, m.Created = newMessageID(), c.now()
	m.Updated = m.Created
	if m.Type == typeCard {
		m.Card = feishu.CardID(m.Content)
	}
	if err := c.keep(&m); err != nil {
		return nil, err
	}
	c.opts.Trace("kept")
	if m.Type == typeCard || content.Placeholder(m.Text()) {
		c.opts.Busy(m)
	}
	return c.shown(&m), nil
}

const typeCard = "interactive"

// types are what msg_type may be (docs/feishu.md 5).
var types = []string{"text", "post", typeCard, "image", "file", "audio", "media", "sticker", "share_chat", "share_user",
	"system"}

func checkContent(msgType, content string) error {
	limit := maxPost
	if msgType == "text" {
		limit = maxText
	}
	if len(content) > limit {
		return errTooLong
	}
	var object map[string]json.RawMessage
	if !slices.Contains(types, msgType) || json.Unmarshal([]byte(content), &object) != nil {
		return errContent
	}
	return nil
}

// edit is PUT of a text or post, and PATCH of a card or, as some bots do it, of a post.
func edit(c *call) (any, error) {
	out := &c.out
	m, err := c.own()
	if err != nil {
		return nil, err
	}
	whole := c.r.Method == http.MethodPut
	msgType := m.Type
	if whole {
		msgType = out.MsgType
	}
	if whole && (m.Type == typeCard || !content.IsText(msgType)) || !whole && m.Type != typeCard && m.Type != "post" {
		return nil, errType
	}
	if err := checkContent(msgType, out.Content); err != nil {
		return nil, err
	}
	changed := *m
	changed.Type, changed.Content, changed.Updated = msgType, out.Content, relay.MillisOf(time.Now())
	if err := c.replace(m, changed); err != nil {
		return nil, err
	}
	c.opts.Busy(*m)
	if !whole {
		return nil, nil
	}
	return c.shown(m), nil
}

func recall(c *call) (any, error) {
	m, err := c.own()
	if err != nil {
		return nil, err
	}
	changed := *m
	changed.Deleted, changed.Content, changed.Updated = true, "", relay.MillisOf(time.Now())
	return nil, c.replace(m, changed)
}

func react(c *call) (any, error) {
	m, err := c.message(errMessage)
	if err != nil {
		return nil, err
	}
	emoji := c.out.Reaction.Emoji
	for _, r := range m.Reactions {
		if r.Emoji == emoji {
			return c.shownReaction(r), nil
		}
	}
	if emoji == "" || len(emoji) > maxUUID || len(m.Reactions) >= maxReactions {
		return nil, errReaction
	}
	r := Reaction{ID: mark + random(), Emoji: emoji, At: relay.MillisOf(time.Now())}
	changed := *m
	changed.Reactions = append(slices.Clone(m.Reactions), r)
	if err := c.replace(m, changed); err != nil {
		return nil, err
	}
	c.opts.Busy(*m)
	return c.shownReaction(r), nil
}

func unreact(c *call) (any, error) {
	m, err := c.message(errMessage)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(m.Reactions, func(r Reaction) bool { return r.ID == c.ids["reaction"] })
	if at < 0 {
		return nil, errNoSign
	}
	changed := *m
	changed.Reactions = slices.Delete(slices.Clone(m.Reactions), at, at+1)
	r := m.Reactions[at]
	return c.shownReaction(r), c.replace(m, changed)
}

func reactions(c *call) (any, error) {
	m, err := c.message(errMessage)
	if err != nil {
		return nil, err
	}
	items := []any{}
	for _, r := range m.Reactions {
		if emoji := c.query("reaction_type"); emoji == "" || emoji == r.Emoji {
			items = append(items, c.shownReaction(r))
		}
	}
	return page(items, false, ""), nil
}

func (c *call) shownReaction(r Reaction) map[string]any {
	return map[string]any{"reaction_id": r.ID, "action_time": millis(r.At),
		"operator":      map[string]any{"operator_id": c.opts.Self().AppID, "operator_type": feishu.SenderApp},
		"reaction_type": map[string]any{"emoji_type": r.Emoji}}
}

// card is a change of a card that was sent into a chat. What it changes is read by the gateway.
func card(c *call) (any, error) {
	m, err := c.there(c.cards[c.ids["card"]], errNoCard)
	if err != nil {
		return nil, err
	}
	c.opts.Busy(*m)
	return nil, nil
}

// convert makes an inline card one of CardKit.
func convert(c *call) (any, error) {
	m := c.all[c.out.MessageID]
	switch {
	case m == nil || m.Type != typeCard:
		return nil, errMessage
	case m.Deleted:
		return nil, errRecalled
	}
	if m.Card == "" {
		changed := *m
		changed.Card = "7" + mark + random() // no card of Feishu's has letters
		if err := c.replace(m, changed); err != nil {
			return nil, err
		}
	}
	return map[string]any{"card_id": m.Card}, nil
}

func read(c *call) (any, error) {
	m := c.all[relay.MessageID(c.ids["message"])]
	if m == nil {
		return nil, errMessage
	}
	return map[string]any{"items": []any{c.shown(m)}}, nil
}

func several(c *call) (any, error) {
	items := []any{}
	for _, id := range feishu.Listed(c.r.URL.Query(), "message_ids") {
		m := c.all[relay.MessageID(id)]
		if m == nil {
			return nil, errMessage
		}
		items = append(items, c.shown(m))
	}
	return map[string]any{"items": items}, nil
}

// list is a chat's history (docs/feishu.md 5.3).
func list(c *call) (any, error) {
	all := slices.Clone(c.chats[relay.ChatID(c.query("container_id"))])
	if c.query("container_id_type") != "chat" || len(all) == 0 {
		return nil, errReceiver
	}
	from, _ := strconv.ParseInt(c.query("start_time"), 10, 64) // in seconds; a missing one is 0
	until, err := strconv.ParseInt(c.query("end_time"), 10, 64)
	all = slices.DeleteFunc(all, func(m *Message) bool {
		at := int64(m.Created) / 1000
		return at < from || err == nil && at > until
	})
	if c.query("sort_type") == "ByCreateTimeDesc" {
		slices.Reverse(all)
	}
	size, err := strconv.Atoi(c.query("page_size"))
	if err != nil || size < 1 || size > maxPage {
		size = 20
	}
	at, _ := strconv.Atoi(c.query("page_token"))
	at = max(0, min(at, len(all)))
	end := min(at+size, len(all))
	items := []any{}
	for _, m := range all[at:end] {
		items = append(items, c.shown(m))
	}
	token := ""
	if end < len(all) {
		token = strconv.Itoa(end)
	}
	return page(items, end < len(all), token), nil
}

func page(items []any, more bool, token string) map[string]any {
	return map[string]any{"items": items, "has_more": more, "page_token": token}
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
	if c.query("with_sender_name") == "true" {
		sender["sender_name"] = name
	}
	content := m.Content
	if m.Deleted {
		content = "This message was recalled"
	}
	return feishu.ShownMessage(&feishu.Message{ID: m.ID, RootID: m.Root, ParentID: m.Parent, ChatID: m.Chat, Type: m.Type,
		Content: content, CreateTime: m.Created, Deleted: m.Deleted}, m.Updated, sender)
}

func chat(c *call) (any, error) {
	return map[string]any{"name": c.peer, "description": "", "avatar": "", "chat_mode": feishu.ChatP2P,
		"chat_type": "private", "chat_tag": "inner", "external": false, "chat_status": "normal", "user_count": "1",
		"bot_count": "1"}, nil
}

func members(c *call) (any, error) {
	out := page([]any{map[string]any{"member_id_type": "open_id", "member_id": c.User(c.peer), "name": c.peer}}, false, "")
	out["member_total"] = 1
	return out, nil
}

func bots(c *call) (any, error) {
	self := c.opts.Self()
	return page([]any{map[string]any{"bot_id": self.OpenID, "bot_name": self.Name}}, false, ""), nil
}

func isInChat(*call) (any, error) { return map[string]any{"is_in_chat": true}, nil }

// named is the agent that an open_id is of, among those with a chat.
func (c *call) named(id string) (relay.AgentName, bool) {
	for _, messages := range c.chats {
		if peer := messages[0].Peer; string(c.User(peer)) == id {
			return peer, true
		}
	}
	return "", false
}

func user(c *call) (any, error) {
	peer, ok := c.named(c.ids["user"])
	if !ok {
		return nil, errUser
	}
	return map[string]any{"user": feishu.ShownUser(c.ids["user"], string(peer))}, nil
}

func users(c *call) (any, error) {
	items := []any{}
	for _, id := range feishu.Listed(c.r.URL.Query(), "user_ids") {
		if peer, ok := c.named(id); ok {
			items = append(items, feishu.ShownUser(id, string(peer)))
		}
	}
	return map[string]any{"items": items}, nil
}

func basicBatch(c *call) (any, error) {
	known, failed := map[string]any{}, map[string]any{}
	for _, id := range feishu.Listed(c.r.URL.Query(), "bot_ids") {
		if peer, ok := c.named(id); ok {
			known[id] = feishu.ShownBot(id, string(peer))
		} else {
			failed[id] = feishu.NoBot()
		}
	}
	return map[string]any{"bots": known, "failed_bots": failed}, nil
}

func millis(at relay.Millis) string { return strconv.FormatInt(int64(at), 10) }
