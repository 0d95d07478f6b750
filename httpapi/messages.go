package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"feishu-relay/relay"
)

func (a *api) outbound(w http.ResponseWriter, r *http.Request) {
	var out Outbound
	err := readJSON(w, r, &out)
	if err == nil && out.Channel == mailChannel {
		a.outboundMail(w, r, out)
		return
	}
	if err == nil {
		err = out.check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	sent, err := a.Send(r.Context(), out)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusAccepted, sent)
}

func (a *api) inbound(w http.ResponseWriter, r *http.Request) {
	var heard Heard
	err := readJSON(w, r, &heard)
	if err == nil {
		err = heard.check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	sent, err := a.Hear(r.Context(), heard)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusAccepted, sent)
}

func (a *api) decide(w http.ResponseWriter, r *http.Request) {
	var q Question
	err := readJSON(w, r, &q)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	decision, err := a.Decide(r.Context(), q)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, decision)
}

func (o *Outbound) check() error {
	if o.ChatID == "" {
		return Invalid("chat_id is missing")
	}
	if strings.TrimSpace(o.Content) == "" {
		return Invalid("content is missing or empty")
	}
	if err := checkChatType(o.Metadata); err != nil {
		return err
	}
	return checkIDs(field{"chat_id", string(o.ChatID)}, field{"message_id", string(o.MessageID)},
		field{"channel", o.Channel}, field{"parent_id", string(o.ParentID)},
		field{"root_id", string(o.RootID)}, field{"thread_id", o.ThreadID}, field{"msg_type", o.MsgType})
}

func (h *Heard) check() error {
	if h.ChatID == "" {
		return Invalid("chat_id is missing")
	}
	if strings.TrimSpace(h.Content) == "" {
		return Invalid("content is missing or empty")
	}
	if err := checkChatType(h.Metadata); err != nil {
		return err
	}
	return checkIDs(field{"chat_id", string(h.ChatID)}, field{"message_id", string(h.MessageID)},
		field{"channel", h.Channel}, field{"sender", h.Sender}, field{"sender_id", string(h.SenderID)},
		field{"parent_id", string(h.ParentID)}, field{"root_id", string(h.RootID)}, field{"thread_id", h.ThreadID})
}

// check allows an empty content: what the policy says of it is a fair question.
func (q *Question) check() error {
	if q.ChatID == "" {
		return Invalid("chat_id is missing")
	}
	switch q.Role {
	case "", relay.RoleAssistant:
		if q.SenderAgentName == "" {
			return Invalid("sender_agent_name is missing (for a person's message say \"role\":\"user\")")
		}
	case relay.RoleUser:
	default:
		return Invalid("role: want user or assistant")
	}
	return checkIDs(field{"chat_id", string(q.ChatID)}, field{"message_id", string(q.MessageID)},
		field{"channel", q.Channel}, field{"parent_id", string(q.ParentID)}, field{"root_id", string(q.RootID)},
		field{"thread_id", q.ThreadID}, field{"sender_agent_name", string(q.SenderAgentName)})
}

// checkChatType refuses a chat type that cannot be read: taken for none, it
// would make a group's message of a private one.
func checkChatType(meta relay.Metadata) error {
	raw, ok := meta["chat_type"]
	var chatType *string
	if ok && (json.Unmarshal(raw, &chatType) != nil || chatType == nil) {
		return Invalid(`metadata.chat_type: want a string such as "group"`)
	}
	return nil
}

type field struct{ name, value string }

func checkIDs(fields ...field) error {
	for _, f := range fields {
		if err := relay.CheckID(f.value); err != nil {
			return Invalid("%s %v", f.name, err)
		}
	}
	return nil
}
