package feishusim

import (
	"slices"
	"strconv"
)

var readRoutes = []route{
	{pattern: "GET " + messagesPath, scopes: readScopes, run: listMessages},
	{pattern: "GET " + messagesPath + "/{id}", scopes: readScopes, run: readMessage},
	{pattern: "GET " + messagesPath + "/mget", scopes: readScopes, run: readMessages},
}

// maxRead is how many messages one call may ask for.
const maxRead = 100

// read is the parameters with which a caller reads messages.
type read struct {
	cardType string // card_msg_content_type
	idType   string // user_id_type as given; "": not given
	names    bool   // with_sender_name
}

func (c *call) asked() read {
	return read{c.query("card_msg_content_type"), c.query("user_id_type"), c.query("with_sender_name") == "true"}
}

// restMessage returns m as the REST API shows it to a (docs/feishu.md 5).
func (s *Server) restMessage(a *app, m *message, how read) map[string]any {
	out := map[string]any{
		"message_id": m.ID, "msg_type": m.Type, "chat_id": m.ChatID,
		"create_time": strconv.FormatInt(m.CreateTime, 10), "update_time": strconv.FormatInt(m.UpdateTime, 10),
		"deleted": m.Deleted, "updated": m.Edits > 0,
	}
	for key, value := range map[string]string{"root_id": m.RootID, "parent_id": m.ParentID, "thread_id": m.ThreadID,
		"upper_message_id": m.upper} {
		if value != "" {
			out[key] = value
		}
	}
	sender := map[string]any{"id": m.Sender, "id_type": "app_id", "sender_type": m.SenderType, "tenant_key": tenant}
	if m.SenderType == senderUser {
		sender["id"], sender["id_type"] = s.userID(a, m.Sender, how.idType)
	}
	if how.names {
		sender["sender_name"] = m.SenderName
	}
	out["sender"] = sender
	content := m.received
	if m.card != nil {
		content = m.card.content(how.cardType)
	}
	if m.Deleted {
		content = "This message was recalled"
	}
	out["body"] = map[string]any{"content": content}
	var mentions []map[string]any
	for _, n := range m.mentions {
		id, idType := s.userID(a, n.entity, how.idType)
		if s.apps[n.entity] != nil && how.idType != "" {
			id, idType = n.entity, "app_id" // docs/feishu.md 4.1
		}
		mentions = append(mentions, map[string]any{
			"key": n.key, "id": id, "id_type": idType, "name": s.name(n.entity), "tenant_key": tenant,
		})
	}
	if mentions != nil && !m.Deleted {
		out["mentions"] = mentions
	}
	return out
}

// userID returns an entity's id of the wanted type, open_id by default.
func (s *Server) userID(a *app, entity, want string) (id, idType string) {
	switch {
	case want == "union_id":
		return s.unionID(entity), want
	case want == "user_id" && s.users[entity] != nil && a.may(scopeUserID):
		return entity, want
	}
	return s.openID(a.ID, entity), "open_id"
}

func readMessage(c *call) (any, error) {
	id := c.r.PathValue("id")
	m := c.s.messages[id]
	if m == nil {
		return nil, errMessageID
	}
	if !c.s.chats[m.ChatID].has(c.app.ID) {
		return nil, errNotInChat
	}
	items := []any{c.s.restMessage(c.app, m, c.asked())}
	for _, part := range m.children {
		if p := c.s.messages[part]; p != nil {
			inside := *p
			inside.upper = m.ID
			items = append(items, c.s.restMessage(c.app, &inside, c.asked()))
		}
	}
	return map[string]any{"items": items}, nil
}

func readMessages(c *call) (any, error) {
	q := c.r.URL.Query()
	ids := slices.Concat(q["message_ids"], q["message_ids[]"])
	if len(ids) == 0 || len(ids) > maxRead {
		return nil, errField
	}
	items := []any{}
	for _, id := range ids {
		m := c.s.messages[id]
		if m == nil || !c.s.chats[m.ChatID].has(c.app.ID) {
			return nil, errNoMessages
		}
		items = append(items, c.s.restMessage(c.app, m, c.asked()))
	}
	return map[string]any{"items": items}, nil
}

// listMessages returns a chat's history, or a thread's (docs/feishu.md 5.3).
func listMessages(c *call) (any, error) {
	id := c.query("container_id")
	var in *chat
	threaded := false
	switch c.query("container_id_type") {
	case "chat":
		in = c.s.chats[id]
	case "thread":
		threaded = true
		if t := c.s.threads[id]; t != nil {
			in = c.s.chats[t.chat]
		}
	default:
		return nil, errField
	}
	switch {
	case in == nil:
		return nil, errReceiver
	case !in.has(c.app.ID):
		return nil, errNotInChat
	case in.mode != modeP2P && !c.app.may(historyScopes...):
		return nil, errHistory
	}
	from, until := int64(0), int64(1)<<62
	if !threaded {
		var err error
		if from, err = c.seconds("start_time", from); err != nil {
			return nil, err
		}
		if until, err = c.seconds("end_time", until); err != nil {
			return nil, err
		}
	}
	var all []*message
	for _, m := range c.s.sent {
		at := m.CreateTime / 1000
		switch {
		case threaded && m.ThreadID != id, !threaded && m.ChatID != in.ID, at < from, at > until:
		case !threaded && m.ThreadID != "" && m.RootID != "": // a reply in a topic: here is only its root
		default:
			all = append(all, m)
		}
	}
	if c.query("sort_type") == "ByCreateTimeDesc" {
		slices.Reverse(all)
	}
	return paged(c, all, 20, 50, func(m *message) any { return c.s.restMessage(c.app, m, c.asked()) })
}

func (c *call) seconds(name string, otherwise int64) (int64, error) {
	given := c.query(name)
	if given == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < 0 {
		return 0, errField
	}
	return n, nil
}

// paged shows the page of all that page_size and page_token name.
func paged[T any](c *call, all []T, size, most int, show func(T) any) (page map[string]any, err error) {
	if given := c.query("page_size"); given != "" {
		if size, err = strconv.Atoi(given); err != nil || size < 1 || size > most {
			return nil, errField
		}
	}
	at := 0
	if given := c.query("page_token"); given != "" {
		if at, err = strconv.Atoi(given); err != nil || at < 0 {
			return nil, errField
		}
	}
	at = min(at, len(all))
	next, end := "", min(at+size, len(all))
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	items := []any{}
	for _, one := range all[at:end] {
		items = append(items, show(one))
	}
	return map[string]any{"items": items, "has_more": next != "", "page_token": next}, nil
}
