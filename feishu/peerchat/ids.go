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
)

// mark is what the ids have behind Feishu's prefix, and idBytes the bytes that follow it in hexadecimal.
const (
	mark    = "relaypeer"
	idBytes = 16
)

var (
	wholeID  = regexp.MustCompile(`^(?:oc|om|ou)_` + mark + `[0-9a-f]*$`)
	insideID = regexp.MustCompile(`(?:oc|om|ou)_` + mark + `[0-9a-f]*`)
)

// IsID reports whether an id has the form of those of a chat with an agent, of its messages or of its other member.
func IsID[T ~string](id T) bool {
	return strings.Contains(string(id), mark) && wholeID.MatchString(string(id))
}

// textAPIs are those below /open-apis/ whose bodies are what people wrote: tables, documents, letters.
var textAPIs = []string{"bitable/", "base/", "docx/", "docs/", "sheets/", "board/", "mail/"}

// BodyMayName reports whether the body of a call has to be read to know whether it names such an id: not that of an
// upload, nor a document.
func BodyMayName(r *http.Request) bool {
	path, ok := feishu.Below(r.URL.Path)
	return ok && !strings.HasPrefix(mediaType(r), "multipart/") &&
		!slices.ContainsFunc(textAPIs, func(api string) bool { return strings.HasPrefix(path, api) })
}

func mediaType(r *http.Request) string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind
}

// Named reports whether a call names such an id: in its path, or in a field of its query, form or JSON body whose name
// is one of an id. Elsewhere an id is a text, which names nothing.
func Named(r *http.Request, body []byte) bool { return len(named(r, body)) > 0 }

// named are these ids, those of the path first.
func named(r *http.Request, body []byte) []string {
	ids := append(insideID.FindAllString(r.URL.Path, -1), inForm(form(r.URL.RawQuery))...)
	switch {
	case !BodyMayName(r):
		return ids
	case mediaType(r) == "application/x-www-form-urlencoded":
		return append(ids, inForm(form(string(body)))...)
	}
	return append(ids, inJSON(body)...)
}

// form reads a query or form, as whoever takes a semicolon for a separator, too. What cannot be unescaped is left out.
func form(text string) url.Values {
	values, _ := url.ParseQuery(strings.ReplaceAll(text, ";", "&"))
	return values
}

// lookUps are the calls that ask for several ids, and the fields of these.
var lookUps = map[string]string{"im/v1/messages/mget": "message_ids", "contact/v3/users/batch": "user_ids",
	"bot/v3/bots/basic_batch": "bot_ids"}

// Split parts a look-up of ids of both kinds: real is its query with Feishu's only, and ours that with the others; ""
// where it is no such call, or the chats cannot be used yet: then all of it is to be repeated.
func (c *Chats) Split(r *http.Request) (real, ours string) {
	path, _ := feishu.Below(r.URL.Path)
	field, query := lookUps[path], form(r.URL.RawQuery)
	ids := feishu.Listed(query, field)
	delete(query, field)
	delete(query, field+"[]")
	some, others := ids, slices.DeleteFunc(slices.Clone(ids), inside)
	some = slices.DeleteFunc(some, func(id string) bool { return !inside(id) })
	if field == "" || r.Method != http.MethodGet || len(some) == 0 || len(others) == 0 || len(inForm(query)) > 0 ||
		c.opts.Closed {
		return "", ""
	}
	with := func(ids []string) string {
		query[field] = ids
		return query.Encode()
	}
	return with(others), with(some)
}

func inside(text string) bool { return strings.Contains(text, mark) && insideID.MatchString(text) }

// idField are the names of fields that hold ids: receive_id, user_ids, message_id_list, …
var idField = regexp.MustCompile(`(?i)(?:^|_)ids?(?:_list)?(?:\[\])?$`)

func inForm(form url.Values) (ids []string) {
	for name, values := range form {
		if idField.MatchString(name) {
			ids = append(ids, insideID.FindAllString(strings.Join(values, ","), -1)...)
		}
	}
	return ids
}

// quotedID is a field that is one, in a text that is not all of a JSON document.
var quotedID = regexp.MustCompile(`"(?:\w*_)?ids?(?:_list)?"\s*:\s*\[?\s*"\s*(?:oc|om|ou)_` + mark + `[0-9a-f]*\s*"`)

// inJSON are those of the fields of a JSON document, or of what begins like one. Signs of it may be escaped.
func inJSON(body []byte) []string {
	var call map[string]any
	switch {
	case !bytes.Contains(body, []byte(mark)) && !bytes.Contains(body, []byte(`\u`)):
		return nil
	case json.Unmarshal(body, &call) != nil:
		return insideID.FindAllString(string(quotedID.Find(body)), -1)
	}
	if kind, _ := call["msg_type"].(string); kind == "share_chat" || kind == "share_user" {
		content, _ := call["content"].(string)
		if len(inJSON([]byte(content))) > 0 {
			return []string{"oc_" + mark} // it is not for that chat
		}
	}
	return inObject(call)
}

// written are the fields in which bots and people write: texts and cards, which have values of their own.
var written = []string{"content", "text", "body", "header", "elements", "i18n_elements", "value", "template_variable"}

func inObject(object map[string]any) (ids []string) {
	for name, value := range object {
		if slices.Contains(written, name) {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, one := range list {
			switch one := one.(type) {
			case string:
				if id := strings.TrimSpace(one); idField.MatchString(name) && IsID(id) {
					ids = append(ids, id)
				}
			case map[string]any:
				ids = append(ids, inObject(one)...)
			}
		}
	}
	return ids
}

func random() string {
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}
