package feishu

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Events about a chat that the bot is put into or out of (im.chat.* of the SDK).
const (
	EventBotAdded   = "im.chat.member.bot.added_v1"
	EventBotDeleted = "im.chat.member.bot.deleted_v1"
	EventDisbanded  = "im.chat.disbanded_v1"
)

// Events about a message (docs/feishu.md 3.6).
const (
	EventRecalled      = "im.message.recalled_v1"
	EventReacted       = "im.message.reaction.created_v1"
	EventReactionEnded = "im.message.reaction.deleted_v1"
)

// CodeNotInChat is the code of a call about a chat that the bot is not in (docs/feishu.md 6.2).
const CodeNotInChat = 230002

// All calls share an HTTP/2 connection. It is pinged when it was silent for pingAfter, even
// if no call waits, and is closed with its calls if no answer comes within pingTimeout. Otherwise a connection that a
// router has forgotten is used until the kernel closes it, after a quarter of an hour. A shorter pingTimeout would find
// it sooner, and end calls that Feishu has taken and answers after a short outage.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 45 * time.Second
)

// FindSilence makes t ping its connections, so that it closes dead ones, and returns t.
func FindSilence(t *http.Transport) *http.Transport {
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t
}

// WithoutRedirects returns a client like the given one that follows no redirects.
func WithoutRedirects(client *http.Client) *http.Client {
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Via names this program to a proxy that the environment names, and to an upstream that is not Feishu's own host.
// Either may be its own gateway: then that refuses.
var Via = "1.1 feishu-relay-" + rand.Text()

// Fail answers a call in Feishu's form, with an error of this program. data is there for the Node SDK, which reads it
// before the code (docs/feishu.md 1.1).
func Fail(w http.ResponseWriter, status, code int, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"code":%d,"msg":%s,"data":{}}`, code, compact("feishu-relay: "+text))
}

// Once is a JSON string field that counts its occurrences, in any case of its letters, so that
// duplicates can be refused: Feishu may use another one of them than this program.
type Once struct {
	Text  string // the last one
	Times int
}

// UnmarshalJSON is called for each of them.
func (o *Once) UnmarshalJSON(data []byte) error {
	o.Times++
	return json.Unmarshal(data, &o.Text)
}

// WithoutURL returns err without the URL that net/http puts into it, which may contain a
// secret.
func WithoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// SingleSlashes replaces several slashes in a path by one.
func SingleSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// IsOpenHost reports whether host, with or without the port 443 or 80, serves
// Feishu's or Lark's open API.
func IsOpenHost(host string) bool {
	name, port, found := strings.Cut(host, ":")
	if found && port != "443" && port != "80" {
		return false
	}
	switch strings.ToLower(strings.TrimSuffix(name, ".")) {
	case "open.feishu.cn", "open.larksuite.com":
		return true
	}
	return false
}

// Below is the path of a call below /open-apis/; false where it is not below it. Doubled slashes are tolerated, the
// Node SDK makes them (docs/feishu.md 7.1), and so is one at the end: Feishu decides whether it takes the call.
func Below(path string) (below string, ok bool) {
	return strings.CutPrefix(strings.TrimSuffix(SingleSlashes(path), "/"), "/open-apis/")
}
