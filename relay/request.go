package relay

import (
	"cmp"
	"encoding/json"
	"strings"
)

// Outbound is a message that a bot reports to have sent.
type Outbound struct {
	ChatID    ChatID    `json:"chat_id"`
	Content   string    `json:"content"`
	MessageID MessageID `json:"message_id"`
	TS        Millis    `json:"ts"`
	ParentID  MessageID `json:"parent_id"`
	RootID    MessageID `json:"root_id"`
	ThreadID  string    `json:"thread_id"`
	MsgType   string    `json:"msg_type"`
	Mentions  []Mention `json:"mentions"`
	Channel   string    `json:"channel"`
	ChatType  string    `json:"chat_type"` // default: that of metadata
	Metadata  Metadata  `json:"metadata"`
}

// Heard is a person's message that a bot reports to have received.
type Heard struct {
	Channel    string    `json:"channel"`
	ChatID     ChatID    `json:"chat_id"`
	ChatType   string    `json:"chat_type"`
	Content    string    `json:"content"`
	Sender     string    `json:"sender"`
	SenderID   OpenID    `json:"sender_id"`
	SenderName string    `json:"sender_name"`
	MessageID  MessageID `json:"message_id"`
	TS         Millis    `json:"ts"`
	ParentID   MessageID `json:"parent_id"`
	RootID     MessageID `json:"root_id"`
	ThreadID   string    `json:"thread_id"`
	MsgType    string    `json:"msg_type"` // "": text
	Mentions   []Mention `json:"mentions"`
	UnionID    string    `json:"sender_union_id"`
	SenderType string    `json:"sender_type"` // as Feishu says it; "": user. Only a user commands
	Metadata   Metadata  `json:"metadata"`    // only its chat_type, media_keys and files are used
}

// Question is the body of POST /v1/decide.
type Question struct {
	Outbound
	SenderAgentName AgentName `json:"sender_agent_name"`
	SenderName      string    `json:"sender_name"`
	Sender          string    `json:"sender"`
	SenderID        OpenID    `json:"sender_id"`   // of a person's message, as in Heard
	SenderType      string    `json:"sender_type"` // of a person's message, as in Heard
	Role            string    `json:"role"`
	UserTS          Millis    `json:"user_ts"`
}

// Sent is the answer to an outbound message.
type Sent struct {
	RelayMsgID MessageID `json:"relay_msg_id"`
	Relayed    bool      `json:"relayed"`
	// ForMe is whether a person's message is for this bot; Reason is why not. Both are
	// missing for a bot's own message.
	ForMe  *bool  `json:"for_me,omitempty"`
	Reason Reason `json:"reason,omitempty"`
}

// Check returns an [*Error] if a field is missing or wrong.
func (o *Outbound) Check() error {
	if o.ChatID == "" {
		return Errorf(CodeInvalidRequest, "chat_id is missing")
	}
	if strings.TrimSpace(o.Content) == "" {
		return Errorf(CodeInvalidRequest, "content is missing or empty")
	}
	if err := checkChatType(o.Metadata); err != nil {
		return err
	}
	return cmp.Or(CheckField("chat_id", o.ChatID), CheckField("message_id", o.MessageID),
		CheckField("channel", o.Channel), CheckField("parent_id", o.ParentID),
		CheckField("root_id", o.RootID), CheckField("thread_id", o.ThreadID), CheckField("msg_type", o.MsgType))
}

// Check returns an [*Error] if a field is missing or wrong.
func (h *Heard) Check() error {
	if h.ChatID == "" {
		return Errorf(CodeInvalidRequest, "chat_id is missing")
	}
	if strings.TrimSpace(h.Content) == "" {
		return Errorf(CodeInvalidRequest, "content is missing or empty")
	}
	if err := checkChatType(h.Metadata); err != nil {
		return err
	}
	return cmp.Or(CheckField("chat_id", h.ChatID), CheckField("message_id", h.MessageID),
		CheckField("channel", h.Channel), CheckField("sender", h.Sender), CheckField("sender_id", h.SenderID),
		CheckField("parent_id", h.ParentID), CheckField("root_id", h.RootID), CheckField("thread_id", h.ThreadID))
}

// Check returns an [*Error] if a field is missing or wrong. The content may be
// empty: the policy decides on that too.
func (q *Question) Check() error {
	if q.ChatID == "" {
		return Errorf(CodeInvalidRequest, "chat_id is missing")
	}
	switch q.Role {
	case "", RoleAssistant:
		if q.SenderAgentName == "" {
			return Errorf(CodeInvalidRequest, "sender_agent_name is missing (for a person's message say \"role\":\"user\")")
		}
	case RoleUser:
	default:
		return Errorf(CodeInvalidRequest, "role: want user or assistant")
	}
	return cmp.Or(CheckField("chat_id", q.ChatID), CheckField("message_id", q.MessageID),
		CheckField("channel", q.Channel), CheckField("parent_id", q.ParentID), CheckField("root_id", q.RootID),
		CheckField("thread_id", q.ThreadID), CheckField("sender_agent_name", q.SenderAgentName))
}

// checkChatType refuses a chat type that cannot be read: ignoring it could turn
// a private message into a group's.
func checkChatType(meta Metadata) error {
	raw, ok := meta["chat_type"]
	var chatType *string
	if ok && (json.Unmarshal(raw, &chatType) != nil || chatType == nil) {
		return Errorf(CodeInvalidRequest, `metadata.chat_type: want a string such as "group"`)
	}
	return nil
}

// CheckField is [CheckID] for a field of a request; its error names the field.
func CheckField[ID ~string](name string, id ID) error {
	if err := CheckID(string(id)); err != nil {
		return Errorf(CodeInvalidRequest, "%s %v", name, err)
	}
	return nil
}
