package feishusim

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Limits of messages (docs/feishu.md 5 and 6).
const (
	maxTextBytes = 150 << 10
	maxPostBytes = 30 << 10
	maxEdits     = 20
	maxUUID      = 50
	uuidFor      = time.Hour
	maxUUIDs     = 50_000 // beyond it all are dropped
	maxPatches   = 5      // per second and message
)

const messagesPath = "/open-apis/im/v1/messages"

var messageRoutes = []route{
	{pattern: "POST " + messagesPath, scopes: sendScopes, run: with(createMessage)},
	{pattern: "POST " + messagesPath + "/{id}/reply", scopes: sendScopes, run: with(replyMessage)},
	{pattern: "PUT " + messagesPath + "/{id}", scopes: updateScopes, run: onOwn(editMessage)},
	{pattern: "PATCH " + messagesPath + "/{id}", scopes: updateScopes, run: onOwn(patchCard)},
	{pattern: "DELETE " + messagesPath + "/{id}", scopes: recallScopes, run: onMessage(recallMessage)},
	{pattern: "POST " + messagesPath + "/{id}/reactions", scopes: reactionScopes, run: onMessage(addReaction)},
	{pattern: "DELETE " + messagesPath + "/{id}/reactions/{reaction}", scopes: reactionScopes,
		run: onMessage(deleteReaction)},
}

// sentOnce is the message for which a uuid was used.
type sentOnce struct {
	id   string
	when time.Time
}

type outgoing struct {
	ReceiveID string `json:"receive_id"`
	MsgType   string `json:"msg_type"`
	Content   string `json:"content"`
	UUID      string `json:"uuid"`
	InThread  bool   `json:"reply_in_thread"`
}

func createMessage(c *call, in *outgoing) (any, error) {
	to, thread, err := c.receiver(in.ReceiveID)
	if err != nil {
		return nil, err
	}
	return c.send(in, draft{chat: to, thread: thread})
}

func replyMessage(c *call, in *outgoing) (any, error) {
	parent, err := c.message(errReplyGone)
	if err != nil {
		return nil, err
	}
	return c.send(in, draft{chat: c.s.chats[parent.ChatID], reply: parent, inThread: in.InThread})
}

// message returns the message in the path, which the app must be able to see.
func (c *call) message(gone *apiError) (*message, error) {
	id := c.r.PathValue("id")
	if !strings.HasPrefix(id, "om_") {
		return nil, errMessageID
	}
	m := c.s.messages[id]
	switch {
	case m == nil:
		return nil, gone
	case !c.s.chats[m.ChatID].has(c.app.ID):
		return nil, errNotInChat
	case m.Deleted:
		return nil, errRecalled
	}
	return m, nil
}

// receiver returns the chat, or the thread in it, that a send names.
func (c *call) receiver(id string) (*chat, *thread, error) {
	s := c.s
	if id == "" {
		return nil, nil, errReceiver
	}
	switch c.query("receive_id_type") {
	case "chat_id":
		to := s.chats[id]
		switch {
		case to == nil:
			return nil, nil, errReceiver
		case len(to.Members) == 0, to.status != "":
			return nil, nil, errGone
		case !to.has(c.app.ID):
			return nil, nil, errNotInChat
		}
		return to, nil, nil
	case "thread_id":
		t := s.threads[id]
		if t == nil {
			return nil, nil, errReceiver
		}
		if !s.chats[t.chat].has(c.app.ID) {
			return nil, nil, errNotInChat
		}
		return s.chats[t.chat], t, nil
	case "open_id", "union_id", "user_id":
		entity, ok := (&converter{s: s, sender: c.app.ID}).resolve(id)
		if !ok || s.users[entity] == nil {
			return nil, nil, errReceiver
		}
		return s.p2p(entity, c.app.ID), nil, nil
	}
	return nil, nil, errReceiveType
}

// send checks a message, sends it, and answers with it.
func (c *call) send(in *outgoing, d draft) (any, error) {
	if len(in.UUID) > maxUUID {
		return nil, errUUID
	}
	if d.chat.status != "" {
		return nil, errGone
	}
	c.s.afterNewest(d.chat)
	key := c.app.ID + " " + in.UUID
	if once, ok := c.s.uuids[key]; ok && in.UUID != "" && time.Since(once.when) < uuidFor {
		if m := c.s.messages[once.id]; m != nil {
			return c.s.restMessage(c.app, m, read{}), nil
		}
	}
	d.sender, d.msgType, d.content = c.app.ID, in.MsgType, in.Content
	if err := c.checkContent(&d); err != nil {
		return nil, err
	}
	if err := c.s.limit(d.chat); err != nil {
		return nil, err
	}
	m, err := c.s.create(d)
	if err != nil {
		return nil, err
	}
	if in.UUID != "" {
		if len(c.s.uuids) >= maxUUIDs {
			clear(c.s.uuids)
		}
		c.s.uuids[key] = sentOnce{m.ID, time.Now()}
	}
	return c.s.restMessage(c.app, m, read{}), nil
}

// checkContent checks the size, and finds the card entity to show.
func (c *call) checkContent(d *draft) error {
	limit := maxTextBytes
	if d.msgType != "text" {
		limit = maxPostBytes
	}
	if len(d.content) > limit {
		return errTooLong
	}
	if d.msgType != "interactive" {
		return nil
	}
	var entity struct {
		Type string
		Data struct {
			ID string `json:"card_id"`
		}
	}
	if json.Unmarshal([]byte(d.content), &entity) != nil || entity.Type != "card" {
		return nil
	}
	k := c.s.cards[entity.Data.ID]
	switch {
	case k == nil:
		return cardError(errNoCard.code, errNoCard.msg)
	case k.app != c.app.ID:
		return cardError(errCardApp.code, errCardApp.msg)
	case k.message != nil:
		return errCardTwice
	}
	d.card = k
	return nil
}

// limit counts a bot's message against the chat's limit a second.
func (s *Server) limit(c *chat) error {
	if s.opts.GroupQPS <= 0 {
		return nil
	}
	now := time.Now()
	c.recent = slices.DeleteFunc(c.recent, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	if len(c.recent) >= s.opts.GroupQPS {
		return errFrequency
	}
	c.recent = append(c.recent, now)
	return nil
}

// onOwn returns a handler of calls that change the app's own message in the path.
func onOwn(run func(c *call, m *message, in *outgoing) (any, error)) func(*call) (any, error) {
	return onMessage(func(c *call, m *message, in *outgoing) (any, error) {
		if m.Sender != c.app.ID {
			return nil, errNotOwner
		}
		return run(c, m, in)
	})
}

func editMessage(c *call, m *message, in *outgoing) (any, error) {
	switch {
	case in.MsgType != "text" && in.MsgType != "post" || m.Type != "text" && m.Type != "post":
		return nil, errUnsupported
	case m.Edits >= maxEdits:
		return nil, errEdits
	}
	if err := c.rewrite(m, in.MsgType, in.Content); err != nil {
		return nil, err
	}
	return c.s.restMessage(c.app, m, read{}), nil
}

// rewrite replaces the content of a text or post, which causes no event.
func (c *call) rewrite(m *message, msgType, content string) error {
	d := draft{chat: c.s.chats[m.ChatID], sender: m.Sender, msgType: msgType, content: content}
	if err := c.checkContent(&d); err != nil {
		return err
	}
	if err := c.s.fill(m, d); err != nil {
		return err
	}
	m.Type = msgType
	m.Edits++
	m.UpdateTime = time.Now().UnixMilli()
	c.s.touch(m, "edit")
	return nil
}

// patchCard replaces the card of a message; some bots edit posts with it too.
func patchCard(c *call, m *message, in *outgoing) (any, error) {
	if m.Type != "interactive" && m.Type != "post" {
		return nil, errUnsupported
	}
	now := time.Now()
	m.patches = slices.DeleteFunc(m.patches, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	if len(m.patches) >= maxPatches {
		return nil, errFrequency
	}
	if m.Type == "post" {
		if err := c.rewrite(m, "post", in.Content); err != nil {
			return nil, err
		}
		m.patches = append(m.patches, now)
		return nil, nil
	}
	if len(in.Content) > maxCardBytes {
		return nil, errTooLong
	}
	k, err := inline(in.Content)
	if err != nil {
		return nil, err
	}
	for _, either := range []*card{m.card, k} {
		if multi, set := either.config()["update_multi"].(bool); set && !multi {
			return nil, errNoUpdate
		}
	}
	k.initial, k.id, k.app, k.message, k.sequence = k.tree, m.card.id, m.card.app, m.card.message, m.card.sequence
	*m.card = *k
	m.Content = in.Content
	m.patches = append(m.patches, now)
	m.Edits++
	m.UpdateTime = now.UnixMilli()
	c.s.touch(m, "edit")
	return nil, nil
}

func recallMessage(c *call, m *message, _ *struct{}) (any, error) {
	if m.Sender != c.app.ID && !c.s.chats[m.ChatID].managedBy(c.app.ID) {
		return nil, errNoRecall
	}
	c.s.recall(m, c.app.ID)
	return nil, nil
}
