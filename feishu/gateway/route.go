package gateway

import (
	"net/http"
	"strings"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// op is what a watched call does (docs/feishu.md 4, 5, 6).
type op int

const (
	opNone op = iota
	opToken
	opBotInfo
	opBotPing
	opChat
	opChatBots
	opBots
	opUser
	opMessage
	opMessages

	// From here on the request's body is read too.
	opCreate
	opReply
	opForward
	opMergeForward
	opEdit
	opPatch
	opRecall
	opReact
	opUnreact
	opCardCreate
	opCardReplace
	opCardSettings
	opCardBatch
	opCardConvert
	opElementAdd
	opElementContent
	opElementReplace
	opElementPatch
	opElementDelete
)

func (o op) readsRequest() bool { return o >= opCreate || o == opToken }

// call is a watched call with the ids of its path.
type call struct {
	op       op
	message  relay.MessageID
	mail     relay.MessageID // what stands in the path for message: a direct message of another agent, about it
	chat     relay.ChatID
	card     string
	element  string
	user     string
	reaction string
}

// match finds what a call is, by method and path; opNone for all that passes
// unread. Doubled slashes are tolerated, the Node SDK makes them (docs/feishu.md 7.1),
// and so is one at the end: Feishu decides whether it takes the call.
func match(method, path string) call {
	path, ok := strings.CutPrefix(strings.TrimSuffix(squash(path), "/"), "/open-apis/")
	if !ok {
		return call{}
	}
	family, rest, _ := strings.Cut(path, "/")
	p := strings.Split(rest, "/")
	switch family {
	case "im":
		return matchIM(method, p)
	case "cardkit":
		return matchCard(method, p)
	case "auth":
		if method == http.MethodPost && len(p) == 3 && p[0] == "v3" && p[2] == "internal" &&
			(p[1] == "tenant_access_token" || p[1] == "app_access_token") {
			return call{op: opToken}
		}
	case "bot":
		switch method + " " + rest {
		case "GET v3/info":
			return call{op: opBotInfo}
		case "POST v1/openclaw_bot/ping":
			return call{op: opBotPing}
		case "GET v3/bots/basic_batch":
			return call{op: opBots}
		}
	case "contact":
		if method == http.MethodGet && len(p) == 3 && p[0] == "v3" && p[1] == "users" {
			return call{op: opUser, user: p[2]}
		}
	}
	return call{}
}

func matchIM(method string, p []string) call {
	if len(p) < 2 || p[0] != "v1" {
		return call{}
	}
	switch p[1] {
	case "messages":
		return matchMessages(method, p[2:])
	case "threads":
		if method == http.MethodPost && len(p) == 4 && p[3] == "forward" {
			return call{op: opForward}
		}
	case "chats":
		switch {
		case method != http.MethodGet || len(p) < 3:
		case len(p) == 3:
			return call{op: opChat, chat: relay.ChatID(p[2])}
		case len(p) == 5 && p[3] == "members" && p[4] == "bots":
			return call{op: opChatBots, chat: relay.ChatID(p[2])}
		}
	}
	return call{}
}

func matchMessages(method string, p []string) call {
	if len(p) == 0 {
		if method == http.MethodPost {
			return call{op: opCreate}
		}
		return call{}
	}
	c := call{message: relay.MessageID(p[0])}
	switch {
	case len(p) == 1 && method == http.MethodGet && p[0] == "mget":
		return call{op: opMessages}
	case len(p) == 1 && method == http.MethodPost && p[0] == "merge_forward":
		return call{op: opMergeForward}
	case len(p) == 1 && method == http.MethodGet:
		c.op = opMessage
	case len(p) == 1 && method == http.MethodPut:
		c.op = opEdit
	case len(p) == 1 && method == http.MethodPatch:
		c.op = opPatch
	case len(p) == 1 && method == http.MethodDelete:
		c.op = opRecall
	case len(p) == 2 && method == http.MethodPost && p[1] == "reply":
		c.op = opReply
	case len(p) == 2 && method == http.MethodPost && p[1] == "forward":
		c.op = opForward
	case len(p) == 2 && method == http.MethodPost && p[1] == "reactions":
		c.op = opReact
	case len(p) == 3 && method == http.MethodDelete && p[1] == "reactions":
		c.op, c.reaction = opUnreact, p[2]
	default:
		return call{}
	}
	if c.op == opReply || c.op == opReact || c.op == opUnreact {
		if about, ok := feishu.AboutMail(c.message); ok {
			c.mail, c.message = c.message, about
		}
	}
	return c
}

// matchCard knows the calls of CardKit (docs/feishu.md 5.2).
func matchCard(method string, p []string) call {
	if len(p) < 2 || p[0] != "v1" || p[1] != "cards" {
		return call{}
	}
	p = p[2:]
	var c call
	if len(p) > 0 {
		c.card = p[0]
	}
	if len(p) > 2 {
		c.element = p[2]
	}
	switch {
	case len(p) == 0:
		if method == http.MethodPost {
			c.op = opCardCreate
		}
	case len(p) == 1 && method == http.MethodPut:
		c.op = opCardReplace
	case len(p) == 1 && method == http.MethodPost && p[0] == "id_convert":
		return call{op: opCardConvert}
	case len(p) == 2 && method == http.MethodPatch && p[1] == "settings":
		c.op = opCardSettings
	case len(p) == 2 && method == http.MethodPost && p[1] == "batch_update":
		c.op = opCardBatch
	case len(p) < 2 || p[1] != "elements":
	case len(p) == 2 && method == http.MethodPost:
		c.op = opElementAdd
	case len(p) == 3:
		c.op = map[string]op{
			http.MethodPut: opElementReplace, http.MethodPatch: opElementPatch, http.MethodDelete: opElementDelete,
		}[method]
	case len(p) == 4 && method == http.MethodPut && p[3] == "content":
		c.op = opElementContent
	}
	if c.op == opNone {
		return call{}
	}
	return c
}

// squash makes one slash of several.
func squash(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
