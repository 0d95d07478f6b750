package gateway

import (
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
	mail     relay.MessageID // what is in the path for message: a direct message of another agent, about it
	chat     relay.ChatID
	card     string
	element  string
	user     string
	reaction string
}

// routes are the watched calls by method and path below /open-apis/; of two that fit the first
// counts. {…} is one segment: an id.
var routes = parseRoutes([]route{
	{opToken, "POST auth/v3/tenant_access_token/internal"},
	{opToken, "POST auth/v3/app_access_token/internal"},
	{opBotInfo, "GET bot/v3/info"},
	{opBotPing, "POST bot/v1/openclaw_bot/ping"},
	{opBots, "GET bot/v3/bots/basic_batch"},
	{opUser, "GET contact/v3/users/{user}"},
	{opChat, "GET im/v1/chats/{chat}"},
	{opChatBots, "GET im/v1/chats/{chat}/members/bots"},
	{opMessages, "GET im/v1/messages/mget"},
	{opMessage, "GET im/v1/messages/{message}"},
	{opCreate, "POST im/v1/messages"},
	{opMergeForward, "POST im/v1/messages/merge_forward"},
	{opEdit, "PUT im/v1/messages/{message}"},
	{opPatch, "PATCH im/v1/messages/{message}"},
	{opRecall, "DELETE im/v1/messages/{message}"},
	{opReply, "POST im/v1/messages/{message}/reply"},
	{opForward, "POST im/v1/messages/{message}/forward"},
	{opForward, "POST im/v1/threads/{thread}/forward"},
	{opReact, "POST im/v1/messages/{message}/reactions"},
	{opUnreact, "DELETE im/v1/messages/{message}/reactions/{reaction}"},
	{opCardCreate, "POST cardkit/v1/cards"}, // CardKit: docs/feishu.md 5.2
	{opCardConvert, "POST cardkit/v1/cards/id_convert"},
	{opCardReplace, "PUT cardkit/v1/cards/{card}"},
	{opCardSettings, "PATCH cardkit/v1/cards/{card}/settings"},
	{opCardBatch, "POST cardkit/v1/cards/{card}/batch_update"},
	{opElementAdd, "POST cardkit/v1/cards/{card}/elements"},
	{opElementReplace, "PUT cardkit/v1/cards/{card}/elements/{element}"},
	{opElementPatch, "PATCH cardkit/v1/cards/{card}/elements/{element}"},
	{opElementDelete, "DELETE cardkit/v1/cards/{card}/elements/{element}"},
	{opElementContent, "PUT cardkit/v1/cards/{card}/elements/{element}/content"},
})

type route struct {
	op   op
	call string
}

// form is the method and the number of segments of a call.
type form struct {
	method   string
	segments int
}

type parsedRoute struct {
	op       op
	segments []string
}

func parseRoutes(list []route) map[form][]parsedRoute {
	byForm := map[form][]parsedRoute{}
	for _, r := range list {
		method, path, _ := strings.Cut(r.call, " ")
		segments := strings.Split(path, "/")
		f := form{method, len(segments)}
		byForm[f] = append(byForm[f], parsedRoute{r.op, segments})
	}
	return byForm
}

// match finds what a call is, by method and path; opNone for all that passes
// unread. Doubled slashes are tolerated, the Node SDK makes them (docs/feishu.md 7.1),
// and so is one at the end: Feishu decides whether it takes the call.
func match(method, path string) call {
	path, ok := strings.CutPrefix(strings.TrimSuffix(feishu.SingleSlashes(path), "/"), "/open-apis/")
	if !ok {
		return call{}
	}
	segments := strings.Split(path, "/")
	for _, r := range routes[form{method, len(segments)}] {
		if c, ok := r.match(segments); ok {
			return c
		}
	}
	return call{}
}

func (r *parsedRoute) match(segments []string) (c call, ok bool) {
	c.op = r.op
	for i, want := range r.segments {
		switch got := segments[i]; want {
		case "{message}":
			c.message = relay.MessageID(got)
		case "{chat}":
			c.chat = relay.ChatID(got)
		case "{card}":
			c.card = got
		case "{element}":
			c.element = got
		case "{user}":
			c.user = got
		case "{reaction}":
			c.reaction = got
		case "{thread}", got:
		default:
			return call{}, false
		}
	}
	if c.op == opReply || c.op == opReact || c.op == opUnreact {
		if about, ok := feishu.AboutMail(c.message); ok {
			c.mail, c.message = c.message, about
		}
	}
	return c, true
}
