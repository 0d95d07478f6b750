package peerchat

import (
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/feishu"
)

// mark is what the ids have behind Feishu's prefix; hexadecimal digits follow it.
const mark = "relaypeer"

const anID = `(?:oc|om|ou)_` + mark + `[0-9a-f]*`

var (
	wholeID  = regexp.MustCompile(`^` + anID + `$`)
	insideID = regexp.MustCompile(anID)
	// quotedID is a text of a JSON document that is an id and nothing else. What bots write is a text within a text.
	quotedID = regexp.MustCompile(`(?:^|[^\\])"\s*(` + anID + `)\s*"`)
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
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return ok && !strings.HasPrefix(kind, "multipart/") &&
		!slices.ContainsFunc(textAPIs, func(api string) bool { return strings.HasPrefix(path, api) })
}

// Named reports whether a call names such an id: in its path or query, or as a text of its JSON body.
func Named(r *http.Request, body []byte) bool { return len(named(r, body)) > 0 }

// named are these ids, those of the path first.
func named(r *http.Request, body []byte) []string {
	query, err := url.QueryUnescape(r.URL.RawQuery)
	if err != nil {
		query = r.URL.RawQuery
	}
	ids := insideID.FindAllString(r.URL.Path+" "+query, -1)
	if BodyMayName(r) {
		for _, found := range quotedID.FindAllSubmatch(body, -1) {
			ids = append(ids, string(found[1]))
		}
	}
	return ids
}
