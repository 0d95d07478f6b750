package peerchat

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

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

// Named reports whether a call names such an id: anywhere in its path or its query, or as a whole string
// somewhere in its JSON body. A text in which one stands names nothing.
func Named(r *http.Request, body []byte) bool {
	return inside(r.URL.Path) || inside(r.URL.RawQuery) || inQuery(r.URL) || inJSON(body)
}

func inside(text string) bool { return strings.Contains(text, mark) && insideID.MatchString(text) }

// inQuery reports whether one stands in the query in another spelling, such as with %5F.
func inQuery(u *url.URL) bool {
	if !strings.Contains(u.RawQuery, "%") {
		return false
	}
	text, err := url.QueryUnescape(u.RawQuery)
	return err == nil && inside(text)
}

// inJSON reports whether one is a string of a JSON document. Signs of it may be escaped.
func inJSON(body []byte) bool {
	if !bytes.Contains(body, []byte(mark)) && !bytes.Contains(body, []byte(`\u`)) {
		return false
	}
	var v any
	if json.Unmarshal(body, &v) != nil {
		return quotedID.Match(body) // cut, or not JSON: rather kept here
	}
	return holds(v)
}

// quotedID is one between quotation marks.
var quotedID = regexp.MustCompile(`"\s*(?:oc|om|ou)_` + mark + `[0-9a-f]*\s*"`)

func holds(v any) bool {
	switch v := v.(type) {
	case string:
		return IsID(strings.TrimSpace(v))
	case []any:
		return slices.ContainsFunc(v, holds)
	case map[string]any:
		for _, one := range v {
			if holds(one) {
				return true
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
