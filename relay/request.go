package relay

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
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
	// Of mail to another agent: its task, until when it can be taken, and what to know of the receiver.
	TaskID    string    `json:"task_id,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Note      string    `json:"note,omitempty"`
	// ForMe is whether a person's message is for this bot; Reason is why not. Both are
	// missing for a bot's own message.
	ForMe  *bool  `json:"for_me,omitempty"`
	Reason Reason `json:"reason,omitempty"`
}

// Check returns an [*Error] if a field is missing or wrong.
func (o *Outbound) Check() error {
	if err := NeedText("content", o.Content); err != nil {
		return cmp.Or(o.checkIDs(), err)
	}
	// A chat type that cannot be read is refused: ignoring it could turn a private message into a group's.
	raw, ok := o.Metadata["chat_type"]
	var chatType *string
	if ok && (json.Unmarshal(raw, &chatType) != nil || chatType == nil) {
		return Errorf(CodeInvalidRequest, `metadata.chat_type: want a string such as "group"`)
	}
	return o.checkIDs()
}

func (o *Outbound) checkIDs() error {
	return cmp.Or(NeedText("chat_id", string(o.ChatID)), CheckField("chat_id", o.ChatID),
		CheckField("message_id", o.MessageID), CheckField("channel", o.Channel), CheckField("parent_id", o.ParentID),
		CheckField("root_id", o.RootID), CheckField("thread_id", o.ThreadID), CheckField("msg_type", o.MsgType))
}

// Check returns an [*Error] if a field is missing or wrong.
func (h *Heard) Check() error {
	o := Outbound{Channel: h.Channel, ChatID: h.ChatID, Content: h.Content, MessageID: h.MessageID, ParentID: h.ParentID,
		RootID: h.RootID, ThreadID: h.ThreadID, Metadata: h.Metadata}
	return cmp.Or(o.Check(), CheckField("sender", h.Sender), CheckField("sender_id", h.SenderID))
}

// Check returns an [*Error] if a field is missing or wrong. The content may be
// empty: the policy decides on that too.
func (q *Question) Check() error {
	switch err := q.checkIDs(); {
	case err != nil:
		return err
	case q.Role != "" && q.Role != RoleAssistant && q.Role != RoleUser:
		return Errorf(CodeInvalidRequest, "role: want user or assistant")
	case q.Role != RoleUser && q.SenderAgentName == "":
		return Errorf(CodeInvalidRequest, "sender_agent_name is missing (for a person's message say \"role\":\"user\")")
	}
	return CheckField("sender_agent_name", q.SenderAgentName)
}

// NeedText refuses a field of a request without a text.
func NeedText(name, text string) error {
	if strings.TrimSpace(text) == "" {
		return Errorf(CodeInvalidRequest, "%s is missing or empty", name)
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
