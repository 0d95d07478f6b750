package feishu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// ErrNotAccepted is wrapped by the errors of answers with a code other than 0 or in another form,
// together with a [*CodeError] if Feishu gave a reason.
var ErrNotAccepted = errors.New("Feishu did not accept the call")

// CodeError is an answer {"code":…,"msg":…} with a code other than 0 (the codes:
// docs/feishu.md 6.2).
type CodeError struct {
	Code int
	Msg  string
}

// maxMsg is how much of a msg an error shows.
const maxMsg = 200

func (e *CodeError) Error() string {
	msg := runes.OneLine(strings.ToValidUTF8(runes.Cut(e.Msg, maxMsg), ""))
	return fmt.Sprintf("code %d: %s", e.Code, msg)
}

// CodeOf returns the code of Feishu's refusal in err; 0 if there is none.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*CodeError](err); ok {
		return e.Code
	}
	return 0
}

// answer is the envelope of Feishu's answers.
type answer[T any] struct {
	Code json.RawMessage `json:"code"`
	Msg  string          `json:"msg"`
	Data T               `json:"data"`
}

// ReadAnswer reads body and returns its data.
func ReadAnswer[T any](body []byte) (data T, err error) {
	var a answer[T]
	if err := lenient(body, &a); err != nil {
		return data, fmt.Errorf("%w: the answer %w", ErrNotAccepted, err)
	}
	switch code, err := strconv.Atoi(string(a.Code)); {
	case err != nil:
		return data, fmt.Errorf("%w: the answer has no code", ErrNotAccepted)
	case code != 0:
		return data, fmt.Errorf("%w: %w", ErrNotAccepted, &CodeError{Code: code, Msg: a.Msg})
	}
	return a.Data, nil
}

// ParseSent reads Feishu's answer to a create, reply, edit or forward of a message
// (docs/feishu.md 5), of at most 4 MiB. For an accepted call whose answer contains no
// message (a card's PATCH) it is the zero Message. Errors wrap [ErrNotAccepted].
func ParseSent(body []byte) (Message, error) {
	data, err := ReadAnswer[struct {
		wireMessage
		Message json.RawMessage `json:"message"` // merge_forward has it one level down
	}](body)
	if err != nil {
		return Message{}, err
	}
	w := data.wireMessage
	if w.Message.ID == "" && len(data.Message) > 0 {
		_ = lenient(data.Message, &w)
	}
	m, err := w.message()
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrNotAccepted, err)
	}
	return m, nil
}

// ParseHistory reads Feishu's answer to GET im/v1/messages and to
// GET im/v1/messages/{id} (docs/feishu.md 5.3), of at most 4 MiB. Items without usable
// ids are omitted. Errors wrap [ErrNotAccepted].
func ParseHistory(body []byte) ([]Message, error) {
	data, err := ReadAnswer[struct {
		Items []wireMessage `json:"items"`
	}](body)
	if err != nil {
		return nil, err
	}
	messages := make([]Message, 0, len(data.Items))
	for _, w := range data.Items {
		if m, err := w.message(); err == nil && m.ID != "" {
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// readBeside is ReadAnswer for data that is beside the code, and not below "data".
func readBeside[T any](body []byte) (data T, err error) {
	if _, err = ReadAnswer[struct{}](body); err == nil {
		err = lenient(body, &data)
	}
	return data, err
}

// Tokens are those that Feishu issues for an app's credentials (docs/feishu.md 6.1).
type Tokens struct {
	Tenant string `json:"tenant_access_token"`
	App    string `json:"app_access_token"`
	Expire int    `json:"expire"` // seconds
}

// ParseTokens reads Feishu's answer to a call for a token. Errors wrap [ErrNotAccepted].
func ParseTokens(answer []byte) (Tokens, error) { return readBeside[Tokens](answer) }

// ParseBotInfo reads Feishu's answer to GET bot/v3/info, or to the ping of OpenClaw's bots:
// the caller's own bot (docs/feishu.md 4.2). Errors wrap [ErrNotAccepted].
func ParseBotInfo(answer []byte) (Self, error) {
	info, err := readBeside[struct {
		Bot struct {
			Name   string       `json:"app_name"`
			OpenID relay.OpenID `json:"open_id"`
		} `json:"bot"`
		Data struct {
			Ping struct {
				ID   relay.OpenID `json:"botID"`
				Name string       `json:"botName"`
			} `json:"pingBotInfo"`
		} `json:"data"`
	}](answer)
	ping := info.Data.Ping
	return Self{Name: cmp.Or(info.Bot.Name, ping.Name), OpenID: cmp.Or(info.Bot.OpenID, ping.ID)}, err
}

// ParseChat reads Feishu's answer to GET im/v1/chats/{id}: a chat's kind and name
// (docs/feishu.md 3.1). An unknown kind counts as a group's. Errors wrap [ErrNotAccepted].
func ParseChat(answer []byte) (chat Chat, err error) {
	data, err := ReadAnswer[struct {
		Mode string `json:"chat_mode"`
		Name string `json:"name"`
		// of a dissolved group: dissolved or dissolved_save; the bot may still count as a member
		Status string `json:"chat_status"`
		Tenant string `json:"tenant_key"`
	}](answer)
	chat.Name, chat.Tenant = data.Name, data.Tenant
	if strings.HasPrefix(data.Status, "dissolved") {
		chat.In = No
	}
	switch data.Mode {
	case "", ChatP2P:
		chat.Kind = data.Mode
	default:
		chat.Kind, chat.Topic = ChatGroup, data.Mode == "topic"
	}
	return chat, err
}

// chatBot is a bot in the answer to GET im/v1/chats/{id}/members/bots, in both spellings
// (docs/feishu.md 4.2).
type chatBot struct {
	BotID   relay.OpenID `json:"bot_id"`
	OpenID  relay.OpenID `json:"open_id"`
	BotName string       `json:"bot_name"`
	Name    string       `json:"name"`
}

func (b *chatBot) bot() Bot {
	return Bot{OpenID: cmp.Or(b.BotID, b.OpenID), Name: cmp.Or(b.BotName, b.Name)}
}

// ShownMessage returns a message in the form of the REST API (docs/feishu.md 5), changed at updated.
func ShownMessage(m *Message, updated relay.Millis, sender map[string]any) map[string]any {
	millis := func(at relay.Millis) string { return strconv.FormatInt(int64(at), 10) }
	shown := map[string]any{"message_id": m.ID, "msg_type": m.Type, "chat_id": m.ChatID,
		"create_time": millis(m.CreateTime), "update_time": millis(updated), "deleted": m.Deleted,
		"updated": updated != m.CreateTime, "sender": sender, "body": map[string]any{"content": m.Content}}
	for name, id := range map[string]string{"root_id": string(m.RootID), "parent_id": string(m.ParentID),
		"thread_id": m.ThreadID} {
		if id != "" {
			shown[name] = id
		}
	}
	return shown
}

// ShownSender returns the sender of a message in the form of the REST API: by app_id or open_id.
func ShownSender[T ~string](id T, idType, senderType string) map[string]any {
	return map[string]any{"id": id, "id_type": idType, "sender_type": senderType}
}

// ShownUser returns a person in the form of GET contact/v3/users.
func ShownUser(id, name string) map[string]any {
	return map[string]any{"open_id": id, "name": name, "en_name": name}
}

// ShownBot returns a bot in the form of GET bot/v3/bots/basic_batch, with one name in all languages.
func ShownBot(id, name string) any {
	return struct {
		ID    string            `json:"bot_id"`
		Name  string            `json:"name"`
		Names map[string]string `json:"i18n_names"`
	}{id, name, map[string]string{"zh_cn": name, "en_us": name}}
}
