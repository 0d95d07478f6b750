package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"feishu-relay/relay"
	"feishu-relay/transcript"
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

func (a *api) transcripts(w http.ResponseWriter, r *http.Request) {
	chats, err := a.Transcripts.Chats()
	if err != nil {
		a.fail(w, r, err)
		return
	}
	type row struct {
		Channel string       `json:"channel"`
		ChatID  string       `json:"chat_id"`
		Bytes   int64        `json:"bytes"`
		TS      relay.Millis `json:"modified"` // Unix milliseconds
	}
	rows := []row{}
	for _, c := range chats {
		if a.Visible(c.Channel, relay.ChatID(c.ChatID)) {
			rows = append(rows, row{c.Channel, c.ChatID, c.Size, relay.MillisOf(c.Modified)})
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"transcripts": rows})
}

// transcriptLimit is the most entries of one answer.
const transcriptLimit = 1000

func (a *api) transcript(w http.ResponseWriter, r *http.Request) {
	channel, chat := r.PathValue("channel"), r.PathValue("chat_id")
	limit := 50
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > transcriptLimit {
			a.fail(w, r, Invalid("limit: want a number from 1 to %d", transcriptLimit))
			return
		}
	}
	if err := checkIDs(field{"channel", channel}, field{"chat_id", chat}); err != nil {
		a.fail(w, r, err)
		return
	}
	if !a.Visible(channel, relay.ChatID(chat)) {
		a.fail(w, r, &Error{http.StatusNotFound, "not_found", "the bot is not in this chat, or has heard nothing of it"})
		return
	}
	entries, err := a.Transcripts.Tail(channel, chat, limit)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if entries == nil {
		entries = []transcript.Entry{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"channel": channel, "chat_id": chat, "entries": entries})
}
