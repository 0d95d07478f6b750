package peerchat

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// mark is what the ids have behind Feishu's prefix, and idBytes the bytes that follow it in hexadecimal.
const (
	mark    = "relaypeer"
	idBytes = 16
)

var (
	wholeID  = regexp.MustCompile(`^(?:oc|om|ou)_` + mark + `[0-9a-f]*$`)
	insideID = regexp.MustCompile(`(?:oc|om|ou)_` + mark)
)

// IsID reports whether an id has the form of those of a chat with an agent, of its messages or of its other member.
func IsID[T ~string](id T) bool {
	return strings.Contains(string(id), mark) && wholeID.MatchString(string(id))
}

// apis are those whose calls may name one, below /open-apis/.
var apis = []string{"im/", "contact/", "cardkit/", "bot/", "message/", "ephemeral/", "interactive/"}

func mayName(r *http.Request) bool {
	path, _ := feishu.Below(r.URL.Path)
	return slices.ContainsFunc(apis, func(api string) bool { return strings.HasPrefix(path, api) })
}

// BodyMayName reports whether the body of a call has to be read to know whether it names such an id: not that of an
// upload.
func BodyMayName(r *http.Request) bool {
	return mayName(r) && !strings.HasPrefix(mediaType(r), "multipart/")
}

func mediaType(r *http.Request) string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind
}

// Named reports whether a call names such an id: in its path, or in a field of its query, form or JSON body whose name
// is one of an id. Elsewhere an id is a text, which names nothing.
func Named(r *http.Request, body []byte) bool {
	switch {
	case inside(r.URL.Path):
		return true
	case !mayName(r):
		return false
	case inForm(r.URL.Query()): // which leaves out what cannot be unescaped
		return true
	case !BodyMayName(r):
		return false
	case mediaType(r) == "application/x-www-form-urlencoded":
		form, _ := url.ParseQuery(string(body)) // as the query
		return inForm(form)
	}
	return inJSON(body)
}

func inside(text string) bool { return strings.Contains(text, mark) && insideID.MatchString(text) }

// idField are the names of fields that hold ids: receive_id, user_ids, message_id_list, …
var idField = regexp.MustCompile(`(?i)(?:^|_)ids?(?:_list)?(?:\[\])?$`)

func inForm(form url.Values) bool {
	for name, values := range form {
		if idField.MatchString(name) && slices.ContainsFunc(values, inside) {
			return true
		}
	}
	return false
}

// inJSON reports whether a field of a JSON document is one. Signs of it may be escaped.
func inJSON(body []byte) bool {
	if !bytes.Contains(body, []byte(mark)) && !bytes.Contains(body, []byte(`\u`)) {
		return false
	}
	var call map[string]any
	if json.Unmarshal(body, &call) != nil {
		return quotedID.Match(body) // cut, or not JSON
	}
	if kind, _ := call["msg_type"].(string); kind == "share_chat" || kind == "share_user" {
		var shared map[string]any
		content, ok := call["content"].(string)
		if ok && json.Unmarshal([]byte(content), &shared) == nil && holds(shared, 1) {
			return true
		}
	}
	return holds(call, 2)
}

// quotedID is a field that is one, in a text that is not all of a JSON document.
var quotedID = regexp.MustCompile(`"(?:\w*_)?ids?(?:_list)?"\s*:\s*\[?\s*"\s*(?:oc|om|ou)_` + mark + `[0-9a-f]*\s*"`)

// holds reports whether a field of an object is one, so many objects deep: further inside are texts and cards, which
// have values of their own.
func holds(object map[string]any, deep int) bool {
	for name, value := range object {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, one := range list {
			switch one := one.(type) {
			case string:
				if idField.MatchString(name) && IsID(strings.TrimSpace(one)) {
					return true
				}
			case map[string]any:
				if deep > 1 && holds(one, deep-1) {
					return true
				}
			}
		}
	}
	return false
}

// newMessageID is the id of a message of the bot.
func newMessageID() relay.MessageID { return relay.MessageID("om_" + mark + random()) }

func random() string {
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}
