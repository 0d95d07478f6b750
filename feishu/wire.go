package feishu

import (
	"encoding/json"
	"strings"

	"feishu-relay/relay"
)

// wireMessage is a message in both of its spellings: events say message_type
// and content, REST answers msg_type and body.content (docs/feishu.md 3.1, 5).
type wireMessage struct {
	MessageID   string        `json:"message_id"`
	RootID      string        `json:"root_id"`
	ParentID    string        `json:"parent_id"`
	ThreadID    string        `json:"thread_id"`
	ChatID      string        `json:"chat_id"`
	ChatType    string        `json:"chat_type"`
	MessageType string        `json:"message_type"`
	MsgType     string        `json:"msg_type"`
	Content     string        `json:"content"`
	CreateTime  lenientMillis `json:"create_time"`
	Deleted     bool          `json:"deleted"`
	Mentions    []wireMention `json:"mentions"`
	Body        struct {
		Content string `json:"content"`
	} `json:"body"`
	Sender wireSender `json:"sender"`
}

// message converts, with its errors about identifiers.
func (w *wireMessage) message() (Message, error) {
	m := Message{
		ID: relay.MessageID(w.MessageID), RootID: relay.MessageID(w.RootID), ParentID: relay.MessageID(w.ParentID),
		ThreadID: w.ThreadID, ChatID: relay.ChatID(w.ChatID), ChatType: w.ChatType,
		Type: w.MessageType, Content: w.Content, Sender: w.Sender.sender(),
		CreateTime: relay.Millis(w.CreateTime), Deleted: w.Deleted,
	}
	if m.Type == "" {
		m.Type = w.MsgType
	}
	if m.Content == "" {
		m.Content = w.Body.Content
	}
	for _, one := range w.Mentions {
		if mention, ok := one.mention(); ok {
			m.Mentions = append(m.Mentions, mention)
		}
	}
	return m, checkIDs("message_id", w.MessageID, "root_id", w.RootID, "parent_id", w.ParentID, "thread_id", w.ThreadID,
		"chat_id", w.ChatID, "message_type", m.Type)
}

// wireSender is who sent a message, as REST answers say it.
type wireSender struct {
	ID         string `json:"id"`
	IDType     string `json:"id_type"`
	SenderType string `json:"sender_type"`
	SenderName string `json:"sender_name"`
}

func (w wireSender) sender() Sender {
	var ids wireIDs
	ids.set(w.ID, w.IDType)
	return Sender{Type: w.SenderType, OpenID: ids.open(), UnionID: ids.UnionID, UserID: ids.UserID, AppID: ids.AppID,
		Name: w.SenderName}
}

// wireMention is one entry of a mentions list.
type wireMention struct {
	Key           string  `json:"key"`
	ID            wireIDs `json:"id"`
	IDType        string  `json:"id_type"`
	Name          string  `json:"name"`
	MentionedType string  `json:"mentioned_type"`
}

// mention leaves out an entry that names nobody in a usable way.
func (w wireMention) mention() (Mention, bool) {
	ids := w.ID
	if ids.plain != "" {
		ids.set(ids.plain, w.IDType)
	}
	m := Mention{Key: w.Key, OpenID: ids.open(), UnionID: ids.UnionID, UserID: ids.UserID, AppID: ids.AppID,
		Name: oneLine(w.Name), Type: w.MentionedType}
	if m.AppID != "" && m.Type == "" {
		m.Type = SenderBot
	}
	err := checkIDs("key", m.Key, "open_id", ids.OpenID, "union_id", m.UnionID, "user_id", m.UserID, "app_id", m.AppID)
	return m, err == nil
}

// wireIDs is an id: an object of ids in events, a string in REST answers.
type wireIDs struct {
	OpenID  string `json:"open_id"`
	UnionID string `json:"union_id"`
	UserID  string `json:"user_id"`
	AppID   string `json:"app_id"`
	plain   string
}

func (w *wireIDs) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &w.plain)
	}
	type object wireIDs
	_ = lenient(data, (*object)(w)) // of another form: no id, and the message stays good
	return nil
}

// set files id under what it is: by the prefix where it has one, since REST
// names a bot by its app_id also where open_ids were asked for (docs/feishu.md 4.1).
func (w *wireIDs) set(id, idType string) {
	switch {
	case strings.HasPrefix(id, "cli_"):
		w.AppID = id
	case strings.HasPrefix(id, "ou_"):
		w.OpenID = id
	case strings.HasPrefix(id, "on_"):
		w.UnionID = id
	case idType == "app_id":
		w.AppID = id
	case idType == "open_id":
		w.OpenID = id
	case idType == "union_id":
		w.UnionID = id
	default:
		w.UserID = id
	}
}

func (w *wireIDs) open() relay.OpenID { return relay.OpenID(w.OpenID) }

// lenientMillis is a time; an invalid one is ignored and does not invalidate the message.
type lenientMillis relay.Millis

func (ms *lenientMillis) UnmarshalJSON(data []byte) error {
	_ = (*relay.Millis)(ms).UnmarshalJSON(data)
	return nil
}

// oneLine is name without line breaks and control characters.
func oneLine(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029'
	}), " ")
}
