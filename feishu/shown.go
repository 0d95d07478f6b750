package feishu

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

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

// CodeBotNotFound is the code of a failed bot in basic_batch (docs/feishu.md 4.2).
const CodeBotNotFound = 20002

// ShownBot returns a bot in the form of GET bot/v3/bots/basic_batch, with one name in all languages.
func ShownBot(id, name string) any {
	return struct {
		ID    string            `json:"bot_id"`
		Name  string            `json:"name"`
		Names map[string]string `json:"i18n_names"`
	}{id, name, map[string]string{"zh_cn": name, "en_us": name}}
}

// NoBot returns the answer of basic_batch for an unknown id.
func NoBot() map[string]any {
	return map[string]any{"code": CodeBotNotFound, "reason": "bot not found"}
}

// Listed are the values of a repeated query parameter, as SDKs write them: a=1&a=2, a[]=1&a[]=2, a=1,2.
func Listed(q url.Values, name string) (out []string) {
	for _, v := range slices.Concat(q[name], q[name+"[]"]) {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}
